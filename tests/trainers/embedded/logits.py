"""What a policy says of one sequence, without a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from evotrainer.trainers.embedded.forward import Network
from evotrainer.trainers.embedded.packing import TrainRow, pack
from evotrainer.trainers.embedded.policy import Policy


def logits(policy: Policy, ids: list[int]) -> Tensor:
    """Next-token logits [len(ids), V] of one sequence."""
    batch = pack([TrainRow(0, (ids[0],), (*ids[1:], 0))], policy.shape)
    with torch.no_grad():
        return Network(policy, batch, False).forward() @ (policy.head * policy.norm).t()

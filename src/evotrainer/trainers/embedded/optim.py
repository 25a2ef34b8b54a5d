"""Optimizer on the flat weight buffer, gradient clipping."""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from evotrainer.errors import TrainerError

BETAS = (0.9, 0.95)
EPS = 1e-8


class Trained(Protocol):
    """What an optimizer trains: a policy's weights, or its adapters."""

    @property
    def flat(self) -> Tensor: ...
    @property
    def grad(self) -> Tensor | None: ...
    @property
    def n_matrix(self) -> int:
        """Numbers at the front that decay."""
        ...


class Optimizer:
    """AdamW; weight decay on matrices only, as Hugging Face's trainer does.

    PyTorch's functional form with a state of our own: the class `torch.optim.AdamW` imports the compiler when it is
    made, 1.2 CPU-s of every trial.
    """

    def __init__(self, policy: Trained, weight_decay: float, betas: tuple[float, float] = BETAS) -> None:
        assert policy.grad is not None
        self.policy, self.grad = policy, policy.grad
        n = policy.n_matrix
        # two parts of the flat buffer: matrices decay, norms do not
        self.parts = [policy.flat[:n], policy.flat[n:]]
        for p, g in zip(self.parts, (policy.grad[:n], policy.grad[n:]), strict=True):
            p.grad = g
        self.decay = (weight_decay, 0.0)
        self.betas = betas
        self.moments = [
            {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(p),
                "exp_avg_sq": torch.zeros_like(p),
            }
            for p in self.parts
        ]

    def step(self, lr: float, clip: float) -> float:
        """Clip the global gradient norm to `clip`, update, clear gradients; returns the norm before clipping."""
        norm = float(self.grad.norm())
        if not math.isfinite(norm):
            raise TrainerError("the gradient is not finite; lower lr or grad_clip and train again")
        if norm > clip:
            # 1e-6, as torch.nn.utils.clip_grad_norm_ has it
            self.grad.mul_(clip / (norm + 1e-6))
        with torch.no_grad():
            for p, m, decay in zip(self.parts, self.moments, self.decay, strict=True):
                assert p.grad is not None
                adamw(
                    [p],
                    [p.grad],
                    [m["exp_avg"]],
                    [m["exp_avg_sq"]],
                    [],
                    [m["step"]],
                    fused=True,
                    amsgrad=False,
                    beta1=self.betas[0],
                    beta2=self.betas[1],
                    lr=lr,
                    weight_decay=decay,
                    eps=EPS,
                    maximize=False,
                )
        self.grad.zero_()
        return norm

    def state(self) -> dict[str, Any]:
        """As `torch.optim.AdamW.state_dict()` has it."""
        return {"state": dict(enumerate(self.moments))}

    def load(self, state: dict[str, Any]) -> None:
        """Go on with a saved state; those of `torch.optim.AdamW` will do."""
        for i, m in enumerate(self.moments):
            for k, v in m.items():
                v.copy_(state["state"][i][k])

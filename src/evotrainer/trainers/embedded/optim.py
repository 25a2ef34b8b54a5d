"""Optimizer on the flat weight buffer, gradient clipping."""

from __future__ import annotations

import math
from typing import Any

import torch

from evotrainer.errors import TrainerError
from evotrainer.trainers.embedded.policy import Policy

BETAS = (0.9, 0.95)


class Optimizer:
    """AdamW; weight decay on matrices only, as Hugging Face's trainer does."""

    def __init__(self, policy: Policy, weight_decay: float, betas: tuple[float, float] = BETAS) -> None:
        assert policy.grad is not None
        self.policy, self.grad = policy, policy.grad
        n = policy.n_matrix
        self.parts = [policy.flat[:n], policy.flat[n:]]
        for p, g in zip(self.parts, (policy.grad[:n], policy.grad[n:]), strict=True):
            p.grad = g
        groups = [
            {"params": [self.parts[0]], "weight_decay": weight_decay},
            {"params": [self.parts[1]], "weight_decay": 0.0},
        ]
        self.adam = torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=1e-8, fused=True)

    def step(self, lr: float, clip: float) -> float:
        """Clip the global gradient norm to `clip`, update, clear gradients; returns the norm before clipping."""
        norm = float(self.grad.norm())
        if not math.isfinite(norm):
            raise TrainerError("the gradient is not finite; lower lr or grad_clip and train again")
        if norm > clip:
            self.grad.mul_(clip / (norm + 1e-6))
        for g in self.adam.param_groups:
            g["lr"] = lr
        self.adam.step()
        self.grad.zero_()
        return norm

    def state(self) -> dict[str, Any]:
        return self.adam.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        self.adam.load_state_dict(state)

"""What only changes the size of a step's gradient (`records.lint`), shown on the losses themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from evotrainer.factors.gradient import dead_groups_act, weighed_against
from evotrainer.records.recipe import Recipe
from evotrainer.trainers.embedded.losses import Normaliser, Tokens, policy_loss

LENGTHS, ADVANTAGES = (3, 5, 2, 4), (1.0, -1.0, 0.0, 0.0)
"""Two rollouts of a live group, two of a group without spread."""


def gradient(recipe: Recipe, rows: int) -> Tensor:
    """Of the loss over the first rows, by five weights that every token's probability depends on."""
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(5, generator=generator, requires_grad=True)
    row = torch.tensor([r for r, n in enumerate(LENGTHS) for _ in range(n)])
    seen = torch.randn(len(row), 5, generator=generator)[row < rows]
    logits, row = seen @ weights, row[row < rows]
    logprob = torch.nn.functional.logsigmoid(logits)
    p = torch.sigmoid(logits)
    entropy = -(p * torch.log(p) + (1 - p) * torch.log(1 - p))
    counts = torch.tensor(LENGTHS[:rows]).float()
    tokens = Tokens(
        logprob=logprob, old=None, row=row, row_tokens=counts, advantage=torch.tensor(ADVANTAGES[:rows]),
        entropy=entropy, reference=logprob.detach() - 0.3 * seen[:, 0] if recipe.kl_beta else None,
    )  # fmt: skip
    policy_loss(tokens, recipe, Normaliser(rows, int(counts.sum()), 8)).loss.backward()
    assert weights.grad is not None
    return weights.grad


def same_direction(a: Tensor, b: Tensor) -> bool:
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0)) > 1 - 1e-6


def made(**changes: Any) -> Recipe:
    return Recipe(rewards={"right": 1.0}).with_changes(changes)


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "gspo", "cispo"])
def test_without_the_groups_that_have_no_spread_a_gradient_is_only_larger(loss: str) -> None:
    plain = made(loss=loss)
    whole, kept = gradient(plain, 4), gradient(plain, 2)
    assert same_direction(whole, kept) and float(kept.norm()) > 1.2 * float(whole.norm())
    assert not dead_groups_act(plain)
    for acts in (made(loss=loss, kl_beta=0.1), made(loss=loss, entropy_bonus=0.1)):
        assert not same_direction(gradient(acts, 4), gradient(acts, 2)) and dead_groups_act(acts)


def test_the_divisors_of_dapo_and_dr_grpo_differ_in_size_only() -> None:
    for told in ({}, {"kl_beta": 0.1}):
        assert same_direction(gradient(made(loss="dapo", **told), 4), gradient(made(loss="dr_grpo", **told), 4))
        assert not weighed_against(made(**told))
    bonus = {"entropy_bonus": 0.1}
    assert not same_direction(gradient(made(loss="dapo", **bonus), 4), gradient(made(loss="dr_grpo", **bonus), 4))
    assert weighed_against(made(**bonus))

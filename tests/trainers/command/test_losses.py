"""What a mapping says of a loss is what a reference library computes: value and gradient, on ragged rollouts."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from evotrainer.records.recipe import Recipe
from evotrainer.trainers.base import installed
from evotrainer.trainers.embedded.losses import Normaliser, Tokens, policy_loss

pytestmark = pytest.mark.skipif(not installed("polgrad"), reason="needs polgrad: pip install polgrad")
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "command"
VALUES: dict[str, str] = tomllib.loads((EXAMPLE / "task.toml").read_text())["trainer"]["options"]["map"]["loss"][
    "values"
]
KINDS = {"dapo": "TOKEN_MEAN", "bnpo": "TOKEN_MEAN", "grpo": "SEQ_MEAN_TOKEN_MEAN", "dr_grpo": "TOKEN_SUM_NORM"}
"""Loss of a recipe -> polgrad's aggregation."""
LENGTHS, BUDGET = (2, 4, 6, 8), 10


def batch(first_pass: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(log-probabilities, old ones, advantages, mask) of four rollouts."""
    g = torch.Generator().manual_seed(3)
    now = -torch.rand((4, 8), generator=g, dtype=torch.float64)
    old = now.clone() if first_pass else now + 0.3 * torch.randn((4, 8), generator=g, dtype=torch.float64)
    mask = torch.arange(8).expand(4, 8) < torch.tensor(LENGTHS)[:, None]
    return now.requires_grad_(), old, torch.randn((4,), generator=g, dtype=torch.float64), mask


def reference(loss: str, given: Any, clip: float) -> tuple[float, torch.Tensor]:
    import polgrad as p

    now, old, advantages, mask = given
    config = p.PolicyLossConfig(
        ratio=p.RatioKind.TOKEN,
        surrogate=p.SurrogateKind.PG_CLIP,
        clip=p.ClipConfig(eps_low=clip, eps_high=clip),
        aggregation=p.Aggregation[KINDS[loss]],
        norm_len=BUDGET if loss == "dr_grpo" else None,
    )
    out = p.policy_loss(config, logprobs=now, old_logprobs=old, advantages=advantages, response_mask=mask)
    (grad,) = torch.autograd.grad(out.loss, now)
    return float(out.loss), grad


@pytest.mark.parametrize("loss", VALUES)
def test_the_example_aggregates_as_its_mapping_says(loss: str) -> None:
    aggregated = runpy.run_path(str(EXAMPLE / "train.py"))["aggregated"]
    now, old, advantages, mask = batch(first_pass=True)
    value = aggregated(-torch.exp(now - now.detach()) * advantages[:, None], mask, VALUES[loss], BUDGET)
    (grad,) = torch.autograd.grad(value, now)
    wanted, slope = reference(loss, (now, old, advantages, mask), 0.2)
    assert float(value.detach()) == pytest.approx(wanted, abs=1e-12) and torch.allclose(grad, slope, atol=1e-12)


@pytest.mark.parametrize("loss", KINDS)
def test_the_names_of_losses_mean_what_they_do_elsewhere(loss: str) -> None:
    """Off policy, where the ratio is clipped, too."""
    now, old, advantages, mask = batch()
    recipe = Recipe(loss=loss, clip={"low": 0.2, "high": 0.2}, rewards={"a": 1.0})  # type: ignore[arg-type]
    rows = torch.arange(4)[:, None].expand(4, 8)[mask]
    tokens = Tokens(now[mask], old[mask], rows, torch.tensor(LENGTHS), advantages)
    parts = policy_loss(tokens, recipe, Normaliser(4, sum(LENGTHS), BUDGET))
    (grad,) = torch.autograd.grad(parts.loss, now)
    wanted, slope = reference(loss, (now, old, advantages, mask), 0.2)
    assert float(parts.loss.detach()) == pytest.approx(wanted, abs=1e-9) and torch.allclose(grad, slope, atol=1e-9)

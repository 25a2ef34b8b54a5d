"""Policy losses over flat tokens; equal to TRL 1.16's on the same batch (tests/trainers/test_trl_parity.py).

A batch has R rollouts; its loss sums over micro-batches, so normalisers are computed on the whole batch first and
include rollouts that are skipped because their advantage is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evotrainer.records.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Normaliser:
    """Divisors of a batch's loss."""

    rollouts: int
    """All rollouts of the batch, those without counted tokens included."""
    tokens: int
    """All counted tokens."""
    max_tokens: int
    """Completion budget of one rollout (Dr. GRPO's constant)."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """One micro-batch, flat over its T counted tokens of n rows."""

    logprob: Tensor
    """[T] under the policy in training."""
    old: Tensor | None
    """[T] under the policy at the start of the step; None: the same as now."""
    row: Tensor
    """[T] row number."""
    row_tokens: Tensor
    """[n] counted tokens of each row."""
    advantage: Tensor
    """[n]"""
    by_token: Tensor | None = None
    """[T] advantages, where turns are credited by themselves; None: each row's."""
    entropy: Tensor | None = None
    reference: Tensor | None = None
    """[T] under the start policy, where kl_beta > 0."""
    sampler: Tensor | None = None
    """[T] as sampled, where is_cap is set."""


@dataclass(frozen=True, slots=True)
class LossParts:
    loss: Tensor
    """Share of the batch's loss; sum over micro-batches."""
    kl_sum: float
    ratio_max: float
    clipped: float
    """Tokens (or rows, for gspo) outside the clip range in the direction of their advantage, as token count."""


def _row_mean(x: Tensor, t: Tokens) -> Tensor:
    """Mean over each row's tokens, [n]."""
    total = torch.zeros_like(t.advantage).index_add(0, t.row, x)
    return total / t.row_tokens.clamp(min=1.0)


def policy_loss(t: Tokens, recipe: Recipe, norm: Normaliser) -> LossParts:
    """Loss of one micro-batch (to minimise).

    grpo: mean over rollouts of the token mean (GRPO, arXiv 2402.03300 eq. 3). dapo, cispo: sum over all tokens of the
    batch (arXiv 2503.14476 eq. 8, 2506.13585 eq. 4). bnpo: the same within the batch. dr_grpo: divided by the constant
    rollouts * max_tokens (2503.20783). gspo: ratio of sequence likelihoods, length-normalised (2507.18071 eq. 7).
    """
    old = t.logprob.detach() if t.old is None else t.old
    log_ratio = t.logprob - old
    adv = t.advantage[t.row] if t.by_token is None else t.by_token
    if recipe.loss == "gspo":
        # eq. 7: the geometric mean of the token ratios, one weight for the whole sequence
        log_ratio = _row_mean(log_ratio, t)[t.row]
    ratio = torch.exp(log_ratio)
    low, high = 1.0 - recipe.clip.low, 1.0 + recipe.clip.high
    if recipe.loss == "cispo":
        # CISPO clips the weight and not the gradient: tokens outside of the range still learn
        per_token = -ratio.clamp(max=high).detach() * adv * t.logprob
        out = (ratio > high) & (adv > 0)
    else:
        # PPO's pessimistic bound (arXiv 1707.06347 eq. 7), with DAPO's separate upper end ("clip-higher")
        per_token = -torch.min(ratio * adv, ratio.clamp(low, high) * adv)
        # only where the clip takes the gradient away: on the other side `min` picks the unclipped term
        out = ((ratio < low) & (adv < 0)) | ((ratio > high) & (adv > 0))
    if t.sampler is not None and recipe.is_cap is not None:
        # the sampler's numbers are not the trainer's: truncated importance weights make up for it
        per_token = per_token * torch.exp(old - t.sampler).clamp(max=recipe.is_cap)
    kl_sum = 0.0
    if t.reference is not None:
        d = t.reference - t.logprob
        kl = torch.exp(d) - d - 1  # k3, http://joschu.net/blog/kl-approx.html
        # Times the ratio: only then is its gradient that of the reverse KL
        # (arXiv 2512.02556, section 3.1; TRL's default).
        per_token = per_token + recipe.kl_beta * kl * ratio
        kl_sum = float(kl.detach().sum())
    loss = _aggregate(per_token, t, recipe, norm)
    if recipe.entropy_bonus and t.entropy is not None:
        # over the whole batch's tokens whatever the loss divides by: an entropy is a mean per token
        loss = loss - recipe.entropy_bonus * t.entropy.sum() / max(1, norm.tokens)
    n = ratio.numel()
    return LossParts(loss, kl_sum, float(ratio.detach().max()) if n else 1.0, float(out.sum()))


def _aggregate(per_token: Tensor, t: Tokens, recipe: Recipe, norm: Normaliser) -> Tensor:
    if recipe.loss in ("grpo", "gspo"):
        return _row_mean(per_token, t).sum() / max(1, norm.rollouts)
    if recipe.loss == "dr_grpo":
        return per_token.sum() / max(1, norm.rollouts * norm.max_tokens)
    return per_token.sum() / max(1, norm.tokens)

"""A step's curve entry. Names that TRL logs are kept as TRL writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from evotrainer.algorithm.advantages import negative_share
from evotrainer.algorithm.rewards import pass_mark
from evotrainer.records.events.trials import TOKEN_SUMS
from evotrainer.records.recipe import Recipe
from evotrainer.trainers.groups import Group


@dataclass(slots=True)
class UpdateSums:
    """What an update showed, over the micro-batches of a step."""

    loss: float = 0.0
    grad_norm: float = 0.0
    ratio_max: float = 1.0
    gap: float = 0.0
    gap_max: float = 0.0
    gap_tokens: float = 0.0
    sft: list[float] = field(default_factory=list)
    replayed: list[float] = field(default_factory=list)
    tokens_trained: int = 0
    """Tokens whose gradient was taken by all processes, prompts and passes counted."""
    tokens_reference: int = 0

    def figures(self, trained_rollouts: int, clipped: float, others: Mapping[str, float]) -> dict[str, float]:
        """For the step's curve entry. `clipped`: share of tokens; `others`: what not every update has."""
        out = {
            "trained_rollouts": float(trained_rollouts),
            "loss": self.loss,
            "grad_norm": self.grad_norm,
            "ratio_max": self.ratio_max,
            "clip_ratio/region_mean": clipped,
            "sampling/sampling_logp_difference/mean": self.gap / max(1.0, self.gap_tokens),
            "sampling/sampling_logp_difference/max": self.gap_max,
            **others,
        }
        if self.sft:
            out["sft_loss"] = sum(self.sft) / len(self.sft)
        if self.replayed:
            out["replay_loss"] = sum(self.replayed) / len(self.replayed)
        return out


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def curve_entry(
    step: int, groups: Sequence[Group], update: Mapping[str, float], recipe: Recipe, lr: float, tokens: int
) -> dict[str, float]:
    """Numbers of one step over all its sampled groups, filtered ones included; infrastructure faults in no rate.

    dead_fail / dead_pass: share of groups without reward spread whose reward is below / at least half of what the
    positive weights can pay. negative_share: of |advantage| x tokens, absent where every advantage is 0. `update`:
    what the trainer saw of its update: loss, grad_norm, trained_rollouts, ... A step that sampled nothing has no rates.
    """
    if not groups:
        return {"step": float(step), "tokens": float(tokens), "lr": lr, **update}
    rollouts = [r for g in groups for r in g.rollouts if r.error_kind is None]
    rewards = [r.reward for r in rollouts if r.reward is not None]
    judged = [r.outcome == "correct" for r in rollouts if r.outcome != "unknown"]
    graded = [g for g in groups if g.rewards]
    dead = [_mean(g.rewards) for g in graded if g.std == 0.0]
    # halfway to the best reward splits "all fail" from "all pass" without looking at outcomes
    half = pass_mark(recipe.rewards)
    n = max(1, len(graded))
    lengths = [r.tokens for r in rollouts if r.tokens is not None]
    entry = {
        "step": float(step),
        "reward": _mean(rewards),
        "reward_std": float(np.std(rewards, ddof=1)) if len(rewards) > 1 else 0.0,
        "score": _mean(judged),
        "frac_reward_zero_std": len(dead) / n,
        "dead_fail": sum(m < half for m in dead) / n,
        "dead_pass": sum(m >= half for m in dead) / n,
        "group_std": _mean([g.std for g in graded]),
        "groups": float(len(groups)),
        "kept_groups": float(sum(g.kept for g in groups)),
        "entropy": _token_mean(groups, "entropies"),
        "mean_logprob": _token_mean(groups, "logprobs"),
        "completions/mean_length": _mean(lengths),
        "completions/max_length": float(max(lengths, default=0)),
        "completions/clipped_ratio": _mean([r.finish == "length" for r in rollouts]),
        "errors": float(sum(r.error_kind is not None for g in groups for r in g.rollouts)),
        "outside_band": float(sum(g.outside_band for g in groups)),
        "tokens": float(tokens),
        "lr": lr,
        **update,
    }
    trained = [(r.advantage, float(r.tokens or 0)) for r in rollouts if r.advantage is not None]
    share = negative_share(*np.array(trained, dtype=np.float64).reshape(-1, 2).T)
    if share is not None:
        entry["negative_share"] = share
    for name in sorted({c for r in rollouts for c in r.components}):
        earned = [r.components.get(name) for r in rollouts]
        values = [v for v in earned if v is not None]
        if values:
            entry[f"rewards/{name}/mean"] = _mean(values)
    return entry


def token_sums(
    curve: Sequence[Mapping[str, float]], groups: Sequence[Group], trained: int, reference: int = 0
) -> dict[str, float]:
    """The curve's `tokens_forward` and `tokens_trained` after a further step: tokens since the base policy that passed
    through the network without and with a gradient, prompts included; what a training's compute is judged by.

    `trained`: of the step's update, all its passes; `reference`: those that the reference policy read.
    """
    before = curve[-1] if curve else dict.fromkeys(TOKEN_SUMS, 0.0)
    sampled = sum(len(a.prompt) + len(a.ids) for g in groups for a in g.attempts)
    step = dict(zip(TOKEN_SUMS, (sampled + reference, trained), strict=True))
    return {k: before[k] + step[k] for k in TOKEN_SUMS}


def _token_mean(groups: Sequence[Group], field: str) -> float:
    """Mean over all sampled tokens of the step."""
    return _mean([x for g in groups for a in g.attempts for x in getattr(a, field)])

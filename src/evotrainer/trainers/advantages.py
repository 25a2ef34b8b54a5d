"""From composed rewards to advantages: group statistics, scaling, group filters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from evotrainer.records.recipe import Credit, GroupFilter

STD_EPS = 1e-4
"""Added to the standard deviation, as TRL does."""
ZERO_STD = 1e-8
"""torch.isclose's absolute tolerance: a group below it gives no gradient."""


def group_std(rewards: Sequence[float]) -> float:
    """Sample standard deviation (n - 1); 0 for fewer than two."""
    if len(rewards) < 2:
        return 0.0
    # ddof=1, as torch.std and TRL have it: with groups of 4 the population's would be 13% smaller, and so parity lost
    std = float(np.std(np.asarray(rewards, dtype=np.float64), ddof=1))
    return 0.0 if std < ZERO_STD else std


def advantages(
    groups: Sequence[Sequence[float | None]], scaling: str, negative_weight: float = 1.0
) -> list[list[float | None]]:
    """Advantages of each group's rollouts; None stays None and enters no statistic.

    group: (r - mean) / (std of the group + 1e-4); batch: std over all rollouts; none: r - mean. Negative ones are
    multiplied by `negative_weight` after that.
    """
    graded = [[r for r in g if r is not None] for g in groups]
    # over all rewards, group means not taken out: what TRL's scale_rewards="batch" divides by
    batch_std = group_std([r for g in graded for r in g])
    out: list[list[float | None]] = []
    for g, rs in zip(groups, graded, strict=True):
        # GRPO (arXiv 2402.03300): A = (r - mean of the group) / (std + eps); "none" is Dr. GRPO's (2503.20783), which
        # drops the division as it favours tasks of low variance
        mean = float(np.mean(rs)) if rs else 0.0
        div = 1.0
        if scaling == "group":
            div = group_std(rs) + STD_EPS
        elif scaling == "batch":
            div = batch_std + STD_EPS
        if group_std(rs) == 0.0:  # exactly zero, not the rounding error of the mean
            out.append([None if r is None else 0.0 for r in g])
        else:
            out.append([None if r is None else _weighted((r - mean) / div, negative_weight) for r in g])
    return out


def turn_advantages(
    returns: Sequence[Sequence[tuple[float, Sequence[float]] | None]],
    rule: Credit,
    scaling: str,
    negative_weight: float,
) -> list[list[tuple[float, ...] | None]]:
    """Advantages by turn of each group's rollouts. `returns`: (reward, turn rewards) of each, None stays None.

    `Credit` has the formula; scaling over the batch is over all returns of the same turn.
    """
    togo = [[None if x is None else _returns_to_go(*x, rule.weight) for x in g] for g in returns]
    longest = max((len(x) for g in togo for x in g if x is not None), default=0)
    by_turn = []
    for t in range(longest):
        at = [[None if x is None else x[min(t, len(x) - 1)] for x in g] for g in togo]
        by_turn.append(advantages(at, scaling, negative_weight))
    return [
        [None if x is None else tuple(by_turn[t][i][j] or 0.0 for t in range(len(x) - 1)) for j, x in enumerate(g)]
        for i, g in enumerate(togo)
    ]


def _returns_to_go(reward: float, turns: Sequence[float], weight: float) -> list[float]:
    """G_t of each turn, and the reward itself at the end, for what comes after the last one."""
    out = [reward]
    for r in reversed(turns):
        out.append(out[-1] + weight * r)
    return out[::-1]


def weighed(advantage: float, weight: float) -> float:
    """An advantage times a hook's weight."""
    return advantage * weight + 0.0  # 0.0, not -0.0, which would be stored as another number


def _weighted(advantage: float, negative_weight: float) -> float:
    # + 0.0: weight 0 leaves 0.0, not -0.0, which would be stored as another number
    return advantage * negative_weight + 0.0 if advantage < 0 else advantage


def negative_share(advantages: Sequence[float], tokens: Sequence[float]) -> float | None:
    """Share of |advantage| x tokens that belongs to negative advantages; None where all are 0."""
    pull = np.asarray(advantages, dtype=np.float64) * np.asarray(tokens, dtype=np.float64)
    total = float(np.abs(pull).sum())
    return float(-pull[pull < 0].sum()) / total if total > 0 else None


@dataclass(slots=True)
class FilterState:
    """Exponential moving mean and variance of group standard deviations (ema_std), kept across steps."""

    mean: float = 0.0
    var: float = 0.0
    seen: int = 0

    def update(self, std: float, decay: float) -> None:
        if self.seen == 0:
            self.mean, self.var = std, 0.0
        else:
            delta = std - self.mean
            self.mean += decay * delta
            # incremental exponentially weighted variance (Finch 2009)
            self.var = (1 - decay) * (self.var + decay * delta * delta)
        self.seen += 1


def keep_groups(stds: Sequence[float], rule: GroupFilter, state: FilterState) -> list[bool]:
    """Which groups give gradient; updates `state` in group order.

    ema_std judges a group by the statistics of the groups before it, and learns from groups with spread only: zeros
    are always dropped and would drag the mean towards accepting anything.
    """
    if rule.kind == "none":
        return [True] * len(stds)
    if rule.kind == "zero_variance":
        return [s > 0 for s in stds]
    if rule.kind == "snr_top_p":
        return _top_p(stds, rule.keep)
    # as many groups as the mean remembers (1 / decay): before that its statistics are those of a few early groups
    warm = max(20, math.ceil(1 / rule.decay))
    z = NormalDist().inv_cdf(rule.keep) if rule.keep < 1 else math.inf
    out = []
    for s in stds:
        # the quantile above which `keep` of the groups lie, were their stds normal
        bound = state.mean - z * math.sqrt(state.var) if math.isfinite(z) else -math.inf
        out.append(s > 0 and (state.seen < warm or s >= bound))
        if s > 0:
            state.update(s, rule.decay)
    return out


def _top_p(stds: Sequence[float], share: float) -> list[bool]:
    """The groups of largest variance that together hold `share` of the total variance."""
    var = np.asarray(stds, dtype=np.float64) ** 2
    total = var.sum()
    keep = np.zeros(len(stds), dtype=bool)
    if total > 0:
        order = np.argsort(-var, kind="stable")
        before = np.cumsum(var[order]) - var[order]
        # groups ahead must hold less than the share, so the one that crosses it is kept; 1e-12 is for sums that round
        # up to it
        keep[order] = (before < share * total * (1 - 1e-12)) & (var[order] > 0)
    return keep.tolist()

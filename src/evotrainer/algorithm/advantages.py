"""From rewards to advantages: statistics of groups, scaling, credit by turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_Numbers = TypeVar("_Numbers", float, Floats)

STD_EPS = 1e-4
"""Added to the standard deviation, as TRL does."""
ZERO_STD = 1e-8
"""torch.isclose's absolute tolerance, which TRL's `frac_reward_zero_std` goes by: a group below it has no spread, and
gives no gradient."""


def flat(groups: Sequence[Sequence[float | None]]) -> tuple[Floats, Ints]:
    """(values, group) of nested lists, shape (N,) each; None becomes NaN."""
    values = np.array([np.nan if v is None else v for g in groups for v in g], dtype=np.float64)
    return values, np.repeat(np.arange(len(groups)), np.array([len(g) for g in groups], dtype=np.int64))


def nested(values: Floats, groups: Sequence[Sequence[object]]) -> list[list[float | None]]:
    """Values (N,) as lists of the lengths that `groups` have; NaN becomes None. What `flat` undoes."""
    each: Iterator[float] = iter(values.tolist())
    return [[None if v != v else v for v in islice(each, len(g))] for g in groups]


def group_stats(values: Floats, group: Ints, n_groups: int) -> tuple[Floats, Floats]:
    """(mean, sample standard deviation) of each group's known values, shape (G,); 0 for fewer than one, or two.

    Divided by n - 1, as torch.std and TRL do: with groups of 4 the population's would be 13% smaller. A spread below
    ZERO_STD is 0.
    """
    known = ~np.isnan(values)
    v, g = values[known], group[known]
    # stable: members are added up in the order in which they were given, so that equal rewards give equal bits
    v = v[np.argsort(g, kind="stable")]
    count = np.bincount(g, minlength=n_groups)
    start = np.cumsum(count) - count
    mean, std = np.zeros(n_groups), np.zeros(n_groups)
    for n in np.unique(count[count > 0]).tolist():
        at = np.flatnonzero(count == n)
        rows = v[start[at][:, None] + np.arange(n)]
        mean[at] = rows.mean(axis=1)
        if n > 1:
            std[at] = rows.std(axis=1, ddof=1)
    std[std < ZERO_STD] = 0.0
    return mean, std


def group_std(values: Floats, group: Ints, n_groups: int) -> Floats:
    """Sample standard deviation of each group, shape (G,); 0 where there is no spread (`group_stats`)."""
    return group_stats(values, group, n_groups)[1]


def no_spread(values: Floats, group: Ints, n_groups: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(groups with two known values or more, those of them without spread), shape (G,) each."""
    scored = np.bincount(group[~np.isnan(values)], minlength=n_groups) > 1
    return scored, scored & (group_std(values, group, n_groups) == 0)


class AdvantageRule(Protocol):
    """What decides over advantages: a recipe, or `PlainRule`."""

    @property
    def reward_scaling(self) -> str: ...
    @property
    def negative_weight(self) -> float: ...


@dataclass(frozen=True)
class PlainRule:
    """An `AdvantageRule` without a recipe."""

    reward_scaling: str = "group"
    negative_weight: float = 1.0


def advantages(rewards: Floats, group: Ints, rule: AdvantageRule) -> Floats:
    """Advantages, shape (N,); NaN where the reward is, which enters no statistic.

    GRPO (arXiv 2402.03300): A = (r - mean of the group) / (std + 1e-4), where std is the group's (`group`) or that of
    all rewards, group means not taken out (`batch`, TRL's scale_rewards="batch"); `none`, Dr. GRPO's (2503.20783), does
    not divide, as that favours tasks of low variance. Negative ones are multiplied by `negative_weight` after that.
    """
    mean, std = group_stats(rewards, group, int(group.max(initial=-1)) + 1)
    a = rewards - mean[group]
    if rule.reward_scaling == "group":
        a = a / (std[group] + STD_EPS)
    elif rule.reward_scaling == "batch":
        a = a / (group_std(rewards, np.zeros_like(group), 1) + STD_EPS)
    a = np.where(a < 0, weighed(a, rule.negative_weight), a)
    # exactly zero, not the rounding error of the mean
    return np.where((std[group] == 0) & ~np.isnan(rewards), 0.0, a)


def weighed(advantages: _Numbers, weight: _Numbers | float) -> _Numbers:
    """Advantages times a weight."""
    return advantages * weight + 0.0  # 0.0, not -0.0, which would be stored as another number


def turn_advantages(rewards: Floats, turns: Floats, group: Ints, weight: float, rule: AdvantageRule) -> Floats:
    """Advantages by turn, shape (N, T), NaN where there is no such turn, or no reward. `turns` (N, T): rewards of the
    turns, NaN after a rollout's last.

    A_t is the advantage of the return-to-go G_t = R + weight x sum of the turn rewards from t on, among those of the
    same turn t; of a rollout that ended before, G_t is R (turn-level advantages, arXiv 2505.11821 and 2505.10978).
    """
    out = np.full(turns.shape, np.nan)
    returns = rewards
    for t in reversed(range(turns.shape[1])):
        there = ~np.isnan(turns[:, t])
        returns = np.where(there, returns + weight * turns[:, t], returns)
        out[there, t] = advantages(returns, group, rule)[there]
    return out


def negative_share(advantages: Floats, tokens: Floats) -> float | None:
    """Share of |advantage| x tokens that belongs to negative advantages; None where all are 0."""
    pull = advantages * tokens
    total = float(np.abs(pull).sum())
    return float(-pull[pull < 0].sum()) / total if total > 0 else None

"""Symptoms in a briefing: bottlenecks by one name each, metrics, and what the rollouts say about rewards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evotrainer.algorithm.advantages import Floats, PlainRule, advantages, flat, group_stats, group_std
from evotrainer.algorithm.rewards import columns, weighted_sum
from evotrainer.projections.bottlenecks import SEVERITY, canonical
from evotrainer.records.briefing import Briefing
from evotrainer.records.rollout import Rollout, group_key, groups_of


def bottlenecks(briefing: Briefing) -> dict[str, float]:
    """Bottleneck -> severity in [0, 1]: the ranked diagnosis, else the findings themselves."""
    out: dict[str, float] = {}
    for f in briefing.health.findings:
        if f.severity == "info":
            continue
        out[canonical(f.kind)] = max(out.get(canonical(f.kind), 0.0), SEVERITY[f.severity])
    ranked = {canonical(b.name): b.score for b in briefing.health.bottlenecks}
    return {k: min(1.0, max(0.0, v)) for k, v in (out | ranked).items()}


def lacking(briefing: Briefing) -> dict[str, str]:
    """Reward component -> the finding by which wrong attempts that are paid lack it."""
    about = {c: f" ({c}: {text})" if text else "" for c, text in briefing.components.items()}
    return {
        f.lacks: f"{f.detector} says: {f.claim}{about.get(f.lacks, '')}" for f in briefing.health.findings if f.lacks
    }


def search_score(briefing: Briefing) -> float | None:
    """The champion's mean search score, from its trials or from the health report."""
    known = [briefing.champion.search.get("score"), briefing.health.metric("accuracy")]
    return next((x for x in known if x is not None), None)


@dataclass(frozen=True, slots=True)
class RewardFit:
    """How well a reward composition pushes towards correct rollouts."""

    aligned: float
    """Within-group covariance of advantage and outcome, over that of the outcome itself: 1 is a perfect reward."""
    dead: float
    """Share of groups without spread."""
    hopeful: float
    """Share of groups without outcome spread that get a spread pointing where correctness lies in other groups."""


class RewardEvidence:
    """Stored rollouts of the champion, (N,), in groups, with every component the environment computed. Infrastructure
    faults and unknown outcomes are left out."""

    def __init__(self, rollouts: Iterable[Rollout], components: Sequence[str]) -> None:
        graded = groups_of(r for r in rollouts if r.error_kind is None and r.outcome != "unknown")
        groups = sorted((g for g in graded if len(g) >= 2), key=lambda g: group_key(g[0]))
        rows = [r for g in groups for r in g]
        self.components = sorted(components)
        self.rollouts = len(rows)
        self._truth, self._group = flat([[float(r.outcome == "correct") for r in g] for g in groups])
        self._sizes = np.array([len(g) for g in groups], dtype=np.float64)
        self._paid = columns([r.components for r in rows], self.components)
        self._better = self._centred(self._truth)
        self._mixed = self._spreads(self._truth)
        self._trust = {c: max(0.0, self.correlation(c)) for c in self.components}
        self._varies = {c: self._spreads(np.nan_to_num(x)) for c, x in self._paid.items()}
        self._ceiling = float(self._aligned(self._truth).sum())

    def __bool__(self) -> bool:
        """True where some group shows both outcomes: only there can a reward be compared with the truth."""
        return bool(self._mixed.any())

    def correlation(self, component: str) -> float:
        """Pooled within-group correlation of a component with the outcome; 0 where either never varies."""
        known = ~np.isnan(self._paid[component])
        x, y = (self._centred(np.where(known, v, np.nan))[known] for v in (self._paid[component], self._truth))
        dx, dy = float((x * x).sum()), float((y * y).sum())
        return float((x * y).sum()) / (dx * dy) ** 0.5 if dx > 1e-12 and dy > 1e-12 else 0.0

    def coverage(self, component: str) -> float | None:
        """Share of rollouts that earn the component (value above half its maximum); None where never measured."""
        x = self._paid[component]
        x = x[~np.isnan(x)]
        return float((x > 0.5 * max(float(x.max()), 1e-12)).mean()) if len(x) else None

    def measured(self, component: str) -> bool:
        """True where some rollout carries a value of the component."""
        return not np.isnan(self._paid[component]).all()

    def fit(self, rewards: Mapping[str, float]) -> RewardFit:
        """Alignment of a composition's group-normalised advantages with the outcome."""
        if not self.rollouts:
            return RewardFit(0.0, 0.0, 0.0)
        paid = self._reward(rewards)
        alive = self._spreads(paid)
        varying = [(self._trust[c], self._varies[c]) for c in self.components if rewards.get(c)]
        trust = sum((r * v for r, v in varying), np.zeros(len(alive)))
        trust = trust / np.maximum(sum((v for _, v in varying), np.zeros(len(alive))), 1)
        return RewardFit(
            aligned=float(self._aligned(paid).sum()) / self._ceiling if self._ceiling > 0 else 0.0,
            dead=float((~alive).mean()),
            hopeful=float((trust * (alive & ~self._mixed)).mean()),
        )

    def gain(self, old: Mapping[str, float], new: Mapping[str, float]) -> tuple[float, float]:
        """(difference in alignment, its standard error over groups)."""
        if self._ceiling <= 0:
            return 0.0, 1.0
        d = self._aligned(self._reward(new)) - self._aligned(self._reward(old))
        se = float(d.std(ddof=1)) * len(d) ** 0.5 / self._ceiling if len(d) > 1 else 1.0
        return float(d.sum()) / self._ceiling, se

    def _reward(self, rewards: Mapping[str, float]) -> Floats:
        """Weighted sum of the components that are known here, (N,)."""
        return weighted_sum({c: rewards.get(c, 0.0) for c in self.components}, self._paid, self.rollouts)

    def _aligned(self, reward: Floats) -> Floats:
        """Covariance of advantage and outcome in each group, (G,)."""
        pull = advantages(reward, self._group, PlainRule()) * self._better
        return np.bincount(self._group, weights=pull, minlength=len(self._sizes)) / self._sizes

    def _centred(self, values: Floats) -> Floats:
        return values - group_stats(values, self._group, len(self._sizes))[0][self._group]

    def _spreads(self, values: Floats) -> NDArray[np.bool_]:
        """Groups whose values differ, (G,)."""
        return group_std(values, self._group, len(self._sizes)) > 0

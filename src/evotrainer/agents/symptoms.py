"""Symptoms in a briefing: bottlenecks by one name each, metrics, and what the rollouts say about rewards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evotrainer.algorithm.advantages import Floats, Ints, advantages, no_spread
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
    """Stored rollouts of the champion, grouped, with every component the environment computed.

    Arrays are padded to the largest group: `x_GNK` (0 where not applicable, as trainers pay it), `y_GN` (1 correct),
    `there_GN`. Infrastructure faults and unknown outcomes are left out.
    """

    def __init__(self, rollouts: Iterable[Rollout], components: Sequence[str]) -> None:
        self.components = sorted(components)
        groups = _grouped(rollouts)
        size = max((len(g) for g in groups), default=2)
        raw_GNK = np.full((len(groups), size, len(self.components)), np.nan)
        self.y_GN = np.zeros((len(groups), size))
        self.there_GN = np.zeros((len(groups), size), dtype=bool)
        for i, g in enumerate(groups):
            for j, r in enumerate(g):
                raw_GNK[i, j] = [_number(r.components.get(c)) for c in self.components]
                self.y_GN[i, j] = r.outcome == "correct"
                self.there_GN[i, j] = True
        self.rollouts = int(self.there_GN.sum())
        self._known_GNK = ~np.isnan(raw_GNK)
        self.x_GNK = np.where(self._known_GNK, raw_GNK, 0.0)
        self._y0_GN = _centred(self.y_GN, self.there_GN)
        self._mixed_G = _spreads(self.y_GN, self.there_GN)
        self._corr_K = np.array([self._correlation(i) for i in range(len(self.components))])
        self._varies_GK = np.stack(
            [_spreads(self.x_GNK[:, :, i], self.there_GN) for i in range(len(self.components))], axis=1
        )
        ceiling_G = (self._normalised(self.y_GN) * self._y0_GN).sum(axis=1) / self._sizes()
        self._ceiling = float(ceiling_G.sum())

    def __bool__(self) -> bool:
        """True where some group shows both outcomes: only there can a reward be compared with the truth."""
        return bool(self._mixed_G.any())

    def correlation(self, component: str) -> float:
        """Pooled within-group correlation of a component with the outcome; 0 where either never varies."""
        return float(self._corr_K[self.components.index(component)])

    def coverage(self, component: str) -> float | None:
        """Share of rollouts that earn the component (value above half its maximum); None where never measured."""
        i = self.components.index(component)
        x = self.x_GNK[:, :, i][self._known_GNK[:, :, i]]
        return float((x > 0.5 * max(float(x.max()), 1e-12)).mean()) if len(x) else None

    def measured(self, component: str) -> bool:
        """True where some rollout carries a value of the component."""
        return bool(self._known_GNK[:, :, self.components.index(component)].any())

    def fit(self, rewards: Mapping[str, float]) -> RewardFit:
        """Alignment of a composition's group-normalised advantages with the outcome."""
        if not self.rollouts:
            return RewardFit(0.0, 0.0, 0.0)
        a_GN = self._advantages(rewards)
        alive_G = np.abs(a_GN).max(axis=1) > 0
        paid_K = np.array([bool(rewards.get(c)) for c in self.components])
        varies_GK = self._varies_GK & paid_K
        trust_G = (varies_GK * np.maximum(self._corr_K, 0.0)).sum(axis=1) / np.maximum(varies_GK.sum(axis=1), 1)
        return RewardFit(
            aligned=float(self._aligned(a_GN).sum()) / self._ceiling if self._ceiling > 0 else 0.0,
            dead=float((~alive_G).mean()),
            hopeful=float((trust_G * (alive_G & ~self._mixed_G)).mean()),
        )

    def gain(self, old: Mapping[str, float], new: Mapping[str, float]) -> tuple[float, float]:
        """(difference in alignment, its standard error over groups)."""
        if self._ceiling <= 0:
            return 0.0, 1.0
        d_G = self._aligned(self._advantages(new)) - self._aligned(self._advantages(old))
        se = float(d_G.std(ddof=1)) * len(d_G) ** 0.5 / self._ceiling if len(d_G) > 1 else 1.0
        return float(d_G.sum()) / self._ceiling, se

    def _advantages(self, rewards: Mapping[str, float]) -> Any:
        return self._normalised(self.x_GNK @ np.array([float(rewards.get(c, 0.0)) for c in self.components]))

    def _normalised(self, r_GN: Any) -> Any:
        return np.nan_to_num(advantages(*_flat(r_GN, self.there_GN), "group")).reshape(r_GN.shape)

    def _aligned(self, a_GN: Any) -> Any:
        return (a_GN * self._y0_GN).sum(axis=1) / self._sizes()

    def _sizes(self) -> Any:
        return np.maximum(self.there_GN.sum(axis=1), 1)

    def _correlation(self, i: int) -> float:
        known_GN = self._known_GNK[:, :, i]
        x, y = _centred(self.x_GNK[:, :, i], known_GN), _centred(self.y_GN, known_GN)
        dx, dy = float((x * x).sum()), float((y * y).sum())
        return float((x * y).sum()) / (dx * dy) ** 0.5 if dx > 1e-12 and dy > 1e-12 else 0.0


def _grouped(rollouts: Iterable[Rollout]) -> list[list[Rollout]]:
    """Groups of at least two graded attempts, by group id."""
    graded = groups_of(r for r in rollouts if r.error_kind is None and r.outcome != "unknown")
    return sorted((g for g in graded if len(g) >= 2), key=lambda g: group_key(g[0]))


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _centred(r_GN: Any, there_GN: Any) -> Any:
    """Rewards minus their group's mean over what is there; 0 elsewhere."""
    mean_G = (r_GN * there_GN).sum(axis=1) / np.maximum(there_GN.sum(axis=1), 1)
    return np.where(there_GN, r_GN - mean_G[:, None], 0.0)


def _spreads(r_GN: Any, there_GN: Any) -> Any:
    """Groups whose values differ."""
    scored_G, alike_G = no_spread(*_flat(r_GN, there_GN), len(r_GN))
    return scored_G & ~alike_G


def _flat(r_GN: Any, there_GN: Any) -> tuple[Floats, Ints]:
    """(values, NaN where nothing is; group) of a padded array, row by row."""
    return np.where(there_GN, r_GN, np.nan).ravel(), np.repeat(np.arange(len(r_GN)), r_GN.shape[1])

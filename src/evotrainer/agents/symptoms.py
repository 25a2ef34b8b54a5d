"""What a briefing says is wrong: bottlenecks by one name each, metrics, and what the rollouts say about rewards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evotrainer.records.evidence import Briefing
from evotrainer.records.rollout import Rollout

SEVERITY = {"info": 0.1, "warn": 0.5, "critical": 0.9}
ALIASES = {
    "proxy_divergence": "proxy_gap",
    "proxy": "proxy_gap",
    "test_special_casing": "special_casing",
    "hard_coding": "special_casing",
    "git_leak": "answer_leak",
    "leak": "answer_leak",
    "tampering": "test_tampering",
    "tamper": "test_tampering",
    "bypass": "grader_bypass",
    "entropy_collapse": "exploration_collapse",
    "repetition": "echo_trap",
    "offpolicy_drift": "off_policy_drift",
    "low_signal": "dead_groups",
    "low_spread": "dead_groups",
}
"""Other names for the bottlenecks of METHOD.md section 4."""
ZERO_STD = 1e-8
STD_EPS = 1e-4
"""As trainers divide: A = (r - mean) / (std + 1e-4)."""


def canonical(name: str) -> str:
    """One name per bottleneck."""
    key = name.strip().lower().replace(" ", "_").replace("-", "_")
    return ALIASES.get(key, key)


def bottlenecks(briefing: Briefing) -> dict[str, float]:
    """Bottleneck -> severity in [0, 1]: the ranked diagnosis, else the findings themselves."""
    out: dict[str, float] = {}
    for f in briefing.health.findings:
        out[canonical(f.kind)] = max(out.get(canonical(f.kind), 0.0), SEVERITY[f.severity])
    ranked = {canonical(b.name): b.score for b in briefing.health.bottlenecks}
    return {k: min(1.0, max(0.0, v)) for k, v in (out | ranked).items()}


def search_score(briefing: Briefing) -> float | None:
    """The champion's mean search score, from its trials or from the health report."""
    known = [briefing.champion.search.get("score"), briefing.health.metric("accuracy")]
    return next((x for x in known if x is not None), None)


@dataclass(frozen=True, slots=True)
class Group:
    """Rollouts of one task by one policy: components (N x K, NaN where not applicable) and outcomes (N, 0 or 1)."""

    components: Any
    outcomes: Any


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a reward composition pushes towards correct rollouts."""

    aligned: float
    """Mean within-group covariance of advantage and outcome, over that of the outcome itself: 1 is a perfect reward."""
    dead: float
    """Share of groups without spread."""
    hopeful: float
    """Share of groups without outcome spread that get a spread pointing where correctness lies in other groups."""


class RewardEvidence:
    """Stored rollouts of the champion, grouped, with every component the environment computed."""

    def __init__(self, rollouts: Iterable[Rollout], components: Sequence[str]) -> None:
        self.components = sorted(components)
        self.groups = list(self._group(rollouts))
        self.rollouts = sum(len(g.outcomes) for g in self.groups)
        self._corr = {c: self._correlation(i) for i, c in enumerate(self.components)}

    def _group(self, rollouts: Iterable[Rollout]) -> Iterable[Group]:
        by_group: dict[str, list[Rollout]] = {}
        for r in rollouts:
            if r.error_kind is None and r.outcome != "unknown":
                by_group.setdefault(r.group or f"{r.policy}/{r.task}", []).append(r)
        for _, rs in sorted(by_group.items()):
            if len(rs) >= 2:
                rows = [[_number(r.components.get(c)) for c in self.components] for r in rs]
                yield Group(np.array(rows), np.array([float(r.outcome == "correct") for r in rs]))

    def __bool__(self) -> bool:
        """True where some group shows both outcomes: only there can a reward be compared with the truth."""
        return any(g.outcomes.min() < g.outcomes.max() for g in self.groups)

    def correlation(self, component: str) -> float:
        """Pooled within-group correlation of a component with the outcome; 0 where either never varies."""
        return self._corr.get(component, 0.0)

    def coverage(self, component: str) -> float | None:
        """Share of rollouts that earn the component (value above half its maximum); None where never measured."""
        i = self.components.index(component)
        x = np.concatenate([g.components[:, i] for g in self.groups]) if self.groups else np.array([])
        x = x[~np.isnan(x)]
        if not len(x):
            return None
        return float((x > 0.5 * max(float(x.max()), 1e-12)).mean())

    def measured(self, component: str) -> bool:
        """True where some rollout carries a value of the component."""
        i = self.components.index(component)
        return any(bool((~np.isnan(g.components[:, i])).any()) for g in self.groups)

    def _correlation(self, i: int) -> float:
        num = dx = dy = 0.0
        for g in self.groups:
            ok = ~np.isnan(g.components[:, i])
            if ok.sum() >= 2:
                x, y = g.components[ok, i], g.outcomes[ok]
                x, y = x - x.mean(), y - y.mean()
                num, dx, dy = num + float(x @ y), dx + float(x @ x), dy + float(y @ y)
        return num / (dx * dy) ** 0.5 if dx > 1e-12 and dy > 1e-12 else 0.0

    def fit(self, rewards: Mapping[str, float]) -> Fit:
        """Alignment of a composition's group-normalised advantages with the outcome."""
        return self._summary(self._terms(rewards))

    def gain(self, old: Mapping[str, float], new: Mapping[str, float]) -> tuple[float, float]:
        """(difference in alignment, its standard error over groups)."""
        a, b = self._terms(old), self._terms(new)
        ceiling = max(sum(t[1] for t in a), 1e-9)
        d_G = np.array([t_new[0] - t_old[0] for t_old, t_new in zip(a, b, strict=True)])
        se = float(d_G.std(ddof=1) * len(d_G) ** 0.5 / ceiling) if len(d_G) > 1 else 1.0
        return float(d_G.sum()) / ceiling, se

    def _terms(self, rewards: Mapping[str, float]) -> list[tuple[float, float, bool, float]]:
        """Per group: covariance with the outcome, its ceiling, dead or not, hopefulness."""
        index = [(self.components.index(c), w) for c, w in sorted(rewards.items()) if w and c in self.components]
        trust = [(i, self._corr[self.components[i]]) for i, _ in index]
        return [_group_terms(g, index, trust) for g in self.groups]

    def _summary(self, terms: Sequence[tuple[float, float, bool, float]]) -> Fit:
        n = max(1, len(terms))
        ceiling = sum(t[1] for t in terms)
        return Fit(
            aligned=sum(t[0] for t in terms) / ceiling if ceiling > 0 else 0.0,
            dead=sum(t[2] for t in terms) / n,
            hopeful=sum(t[3] for t in terms) / n,
        )


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _normalised(r_N: Any) -> Any:
    std = float(r_N.std(ddof=1))
    return np.zeros_like(r_N) if std < ZERO_STD else (r_N - r_N.mean()) / (std + STD_EPS)


def _group_terms(
    g: Group, index: Sequence[tuple[int, float]], trust: Sequence[tuple[int, float]]
) -> tuple[float, float, bool, float]:
    x_NK = np.nan_to_num(g.components)
    r_N = sum((w * x_NK[:, i] for i, w in index), np.zeros(len(g.outcomes)))
    a_N = _normalised(r_N)
    y_N = g.outcomes - g.outcomes.mean()
    dead = not bool(a_N.any())
    hopeful = 0.0
    if not dead and not y_N.any():
        varies = [max(0.0, c) for i, c in trust if float(np.ptp(x_NK[:, i])) > 0]
        hopeful = sum(varies) / len(varies) if varies else 0.0
    return float((a_N * y_N).mean()), float((_normalised(g.outcomes) * y_N).mean()), dead, hopeful

"""Were the agents' forecasts any good? Intervals and promotion chances, from ledgers alone.

Proper scores: CRPS of the gain (Gneiting and Raftery 2007) and the Brier score of the promotion chance, each beside
climatology, the forecast that always says what happened on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import erf, exp, pi, sqrt
from statistics import NormalDist

from evotrainer.projections.state import RunState
from evotrainer.records.chain import Event
from evotrainer.records.events import Judged, Proposed
from evotrainer.records.frozen import Frozen

LEVELS = (0.5, 0.8, 0.95)
"""Of the central intervals that are counted."""


class ForecastedBranch(Frozen):
    """One branch: what its agent expected, what the judge found."""

    run: str
    agent: str
    branch: str
    round: int
    mean: float
    sd: float
    promote: float | None
    kind: str
    observed: float | None
    """Effect on the gate score; None where none was measured."""
    se: float | None
    skills: tuple[str, ...] = ()

    @property
    def promoted(self) -> bool:
        return self.kind == "promote"

    @property
    def spread(self) -> float:
        """Standard deviation of the predictive distribution of the observed gain:
        the agent's doubt and the judge's error."""
        return max(1e-9, sqrt(self.sd**2 + (self.se or 0.0) ** 2))


class Scores(Frozen):
    """How one agent's forecasts did."""

    agent: str
    branches: int
    gains: int
    """Branches with a measured effect."""
    coverage: dict[str, float | None]
    """Level of a central interval -> share of effects inside."""
    bias: float | None
    """Mean of expected minus observed gain, score units."""
    crps: float | None
    crps_climatology: float | None
    chances: int
    """Branches with a promotion chance and a verdict."""
    brier: float | None
    brier_climatology: float | None
    skill: float | None
    """1 - Brier / climatology's: above 0 the chances say more than the average does."""


def forecasts(events: Sequence[Event], run: str = "") -> list[ForecastedBranch]:
    """Every judged branch whose proposal carried a forecast; the last verdict of a branch counts."""
    opened = next((e.body for e in events if e.kind == "run"), None)
    agents = {e.body.round: e.body.proposal.agent for e in events if isinstance(e.body, Proposed)}
    judged = {e.body.verdict.branch for e in events if isinstance(e.body, Judged)}
    out = []
    for b in RunState.of(events).branches.values():
        f = b.intervention.forecast if b.intervention else None
        if b.intervention is None or f is None or b.branch not in judged or b.verdict is None:
            continue
        e = b.verdict.effect if b.verdict.kind not in ("invalid", "failed") else None
        out.append(
            ForecastedBranch(
                run=run or (opened.run if opened else ""),
                agent=agents.get(b.round, ""),
                branch=b.branch,
                round=b.round,
                mean=f.mean,
                sd=f.sd,
                promote=f.promote,
                kind=b.verdict.kind,
                observed=e.mean if e else None,
                se=e.se if e else None,
                skills=tuple(dict.fromkeys(u.skill for u in b.intervention.skills)),
            )
        )
    return out


def score(rows: Sequence[ForecastedBranch]) -> list[Scores]:
    """Scores by agent, agents in alphabetical order."""
    by: dict[str, list[ForecastedBranch]] = {}
    for r in rows:
        by.setdefault(r.agent, []).append(r)
    return [score_one(agent, by[agent]) for agent in sorted(by)]


def score_one(agent: str, rows: Sequence[ForecastedBranch]) -> Scores:
    """Scores of one agent's forecasts over any number of runs."""
    gains = [r for r in rows if r.observed is not None]
    chances = [(r.promote, r.promoted) for r in rows if r.promote is not None]
    brier, climate = _brier(chances)
    return Scores(
        agent=agent,
        branches=len(rows),
        gains=len(gains),
        coverage={f"{level:g}": _coverage(gains, level) for level in LEVELS},
        bias=_mean([r.mean - (r.observed or 0.0) for r in gains]),
        crps=_mean([crps(r.mean, r.spread, r.observed or 0.0) for r in gains]),
        crps_climatology=_climatology([r.observed or 0.0 for r in gains]),
        chances=len(chances),
        brier=brier,
        brier_climatology=climate,
        skill=None if brier is None or not climate else 1 - brier / climate,
    )


def _mean(xs: Sequence[float]) -> float | None:
    return sum(xs) / len(xs) if xs else None


def _coverage(rows: Sequence[ForecastedBranch], level: float) -> float | None:
    """Share of observed effects within the central interval of their forecast."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    return _mean([float(abs((r.observed or 0.0) - r.mean) <= z * r.spread) for r in rows])


def crps(mean: float, sd: float, x: float) -> float:
    """Continuous ranked probability score of a normal forecast, in the units of x; smaller is better."""
    z = (x - mean) / sd
    cdf, pdf = 0.5 * (1 + erf(z / sqrt(2))), exp(-z * z / 2) / sqrt(2 * pi)
    return sd * (z * (2 * cdf - 1) + 2 * pdf - 1 / sqrt(pi))


def _climatology(xs: Sequence[float]) -> float | None:
    """Mean CRPS of the empirical distribution of what was observed, as a forecast of itself
    (its own value left out)."""
    if len(xs) < 3:
        return None
    n = len(xs) - 1
    apart = [sum(abs(x - y) for y in xs) for x in xs]
    every = sum(apart)
    total = sum(d / n - (every - 2 * d) / (2 * n * n) for d in apart)
    return total / len(xs)


def _brier(chances: Sequence[tuple[float, bool]]) -> tuple[float | None, float | None]:
    """(Brier score, that of always saying the average)."""
    if not chances:
        return None, None
    rate = sum(y for _, y in chances) / len(chances)
    return sum((p - y) ** 2 for p, y in chances) / len(chances), rate * (1 - rate)

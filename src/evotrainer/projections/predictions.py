"""Predictions against what was measured: one reading of each side, those that were there when the branch was judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from evotrainer.projections.branches import search_means
from evotrainer.projections.state import RunState
from evotrainer.records.chain import Event
from evotrainer.records.events import Diagnosed, Judged, TrialFinished
from evotrainer.records.findings import HealthReport
from evotrainer.records.interventions import Prediction

TAIL_STEPS = 5
"""A curve is read as the mean of this many last steps."""


@dataclass(frozen=True, slots=True)
class Side:
    """What was known of a branch at one time: its last reading, and the trainings that it was made from."""

    health: HealthReport | None
    trainings: Sequence[TrialFinished]


@dataclass(frozen=True, slots=True)
class PredictionOutcome:
    """A prediction against what was measured; None values: not measured."""

    prediction: Prediction
    parent: float | None
    branch: float | None
    seeds: tuple[int, int]
    """Of the parent's reading and of the branch's."""
    source: str
    """Where the numbers come from."""

    @property
    def change(self) -> float | None:
        return None if self.parent is None or self.branch is None else self.branch - self.parent

    @property
    def came_true(self) -> bool | None:
        if self.change is None:
            return None
        return (self.change if self.prediction.direction == "up" else -self.change) >= self.prediction.size


def subject_branch(subject: str) -> str:
    """Branch a health report speaks of."""
    return re.split(r"[@/ ]", subject, maxsplit=1)[0]


def outcomes(events: Iterable[Event]) -> dict[str, PredictionOutcome]:
    """Branch -> how its prediction about its parent turned out, as of its last verdict, or now where it has none."""
    state, read, judged = RunState(), dict[str, Side](), dict[str, tuple[Side, Side]]()

    def sides(name: str) -> tuple[Side, Side]:
        pair = [state.branches[name].parent or "", name]
        now = (Side(None, state.branches[x].complete if x in state.branches else ()) for x in pair)
        before, after = (read.get(x, side) for x, side in zip(pair, now, strict=True))
        return before, after

    for e in events:
        state.apply(e)
        if isinstance(e.body, Diagnosed) and (b := state.branches.get(subject_branch(e.body.health.subject))):
            read[b.branch] = Side(e.body.health, b.complete)
        elif isinstance(e.body, Judged) and e.body.verdict.branch in state.branches:
            judged[e.body.verdict.branch] = sides(e.body.verdict.branch)
    return {
        b.branch: outcome_of(b.intervention.prediction, *judged.get(b.branch) or sides(b.branch))
        for b in state.branches.values()
        if b.intervention is not None
    }


def outcome_of(prediction: Prediction, parent: Side, branch: Side) -> PredictionOutcome:
    """The predicted metric on both sides: harness metric, search score or component, learning curve; in this order."""
    seeds = (len(parent.trainings), len(branch.trainings))
    for source, look in _SOURCES:
        a, b = look(parent, prediction.metric), look(branch, prediction.metric)
        if a is not None and b is not None:
            return PredictionOutcome(prediction, a, b, seeds, source)
    return PredictionOutcome(prediction, None, None, seeds, "")


def _mean(values: Iterable[float | None]) -> float | None:
    seen = [v for v in values if v is not None]
    return sum(seen) / len(seen) if seen else None


def _from_health(side: Side, metric: str) -> float | None:
    value = side.health.metric(metric) if side.health else None
    if value is not None:
        return value
    own = ([h for h in t.health if h.subject.endswith(" search")] for t in side.trainings)
    return _mean(found[-1].metric(metric) for found in own if found)


def _from_scores(side: Side, metric: str) -> float | None:
    name = metric.removeprefix("search/").removeprefix("search_")
    return search_means(side.trainings).get("score" if name in ("accuracy", "pass_rate", "search") else name)


def _from_curve(side: Side, metric: str) -> float | None:
    tails = ([p[metric] for p in t.curve[-TAIL_STEPS:] if metric in p] for t in side.trainings)
    return _mean(_mean(tail) for tail in tails)


_SOURCES: tuple[tuple[str, Callable[[Side, str], float | None]], ...] = (
    ("harness metric", _from_health),
    ("search split, mean over seeds", _from_scores),
    (f"learning curve, mean of the last {TAIL_STEPS} steps", _from_curve),
)

"""Health reports of several seeds side by side, and predictions held against what happened."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from evotrainer.records.evidence import Finding, HealthReport, MetricValue, Prediction, Quote

LAYERS = ("score", "signal", "behaviour")
_SEVERITY = {"critical": 0, "warn": 1, "info": 2}
_STEP = re.compile(r"@(\d+)")
TAIL_STEPS = 5
"""A curve is read as the mean of this many last steps."""
QUOTES_PER_FINDING = 6


class HasScores(Protocol):
    """A branch, as far as predictions need it."""

    @property
    def metrics(self) -> list[MetricRow]: ...
    @property
    def trials(self) -> Sequence[Any]: ...
    def mean(self, split: str, component: str | None = None) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """One health report with where it was taken."""

    seed: int | None
    """None: over several trials of the branch (a round's diagnosis)."""
    split: str
    step: int
    report: HealthReport

    @classmethod
    def of(cls, seed: int | None, report: HealthReport) -> Reading:
        """Split and step from the subject, `<branch>/<seed>@<step> <split>`."""
        head, _, split = report.subject.rpartition(" ")
        step = _STEP.search(head or report.subject)
        return cls(seed, split if head else "", int(step.group(1)) if step else 0, report)

    @property
    def where(self) -> str:
        place = "diagnosis" if self.seed is None else f"seed {self.seed}"
        return f"{place}, {self.split}" if self.split else place


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric on one split, over the branch's seeds."""

    name: str
    layer: str
    unit: str
    split: str
    values: dict[int, MetricValue]
    """Seed -> value."""
    healthy: tuple[float | None, float | None] | None
    mean: float | None
    missing: tuple[str, ...]

    @property
    def flag(self) -> str:
        """low, high, ok, unseen, or plain where no healthy range is known."""
        if self.mean is None:
            return "unseen"
        if self.healthy is None:
            return "plain"
        low, high = self.healthy
        if low is not None and self.mean < low:
            return "low"
        return "high" if high is not None and self.mean > high else "ok"


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One detector's claims about one branch, over its seeds."""

    detector: str
    kind: str
    severity: str
    validity: bool
    claims: list[tuple[str, Finding]] = field(default_factory=list)
    """(where, finding), the most severe first."""
    quotes: tuple[Quote, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A prediction against what was measured; None values: not measured."""

    prediction: Prediction
    control: float | None
    branch: float | None
    source: str
    """Where the numbers come from."""

    @property
    def change(self) -> float | None:
        return None if self.control is None or self.branch is None else self.branch - self.control

    @property
    def came_true(self) -> bool | None:
        if self.change is None:
            return None
        return (self.change if self.prediction.direction == "up" else -self.change) >= self.prediction.size


def readings(trials: Iterable[Any]) -> list[Reading]:
    """All health reports of finished trials."""
    return [Reading.of(t.seed, h) for t in trials if t.finished for h in t.finished.health]


def metric_rows(items: Sequence[Reading]) -> list[MetricRow]:
    """Metrics grouped by layer, split and name; of several steps the last counts. Diagnoses are left out."""
    cells: dict[tuple[str, str, str], dict[int, tuple[int, MetricValue]]] = {}
    for r in items:
        for m in r.report.metrics if r.seed is not None else ():
            seeds = cells.setdefault((m.layer, r.split, m.name), {})
            if r.seed is not None and (r.seed not in seeds or r.step >= seeds[r.seed][0]):
                seeds[r.seed] = (r.step, m)
    rows = []
    for (layer, split, name), seeds in cells.items():
        values = {seed: m for seed, (_, m) in sorted(seeds.items())}
        known = [m.value for m in values.values() if m.value is not None]
        some = next(iter(values.values()))
        rows.append(
            MetricRow(
                name,
                layer,
                some.unit,
                split,
                values,
                next((m.healthy for m in values.values() if m.healthy), None),
                sum(known) / len(known) if known else None,
                tuple(dict.fromkeys(x for m in values.values() for x in m.missing)),
            )
        )
    return sorted(rows, key=lambda r: LAYERS.index(r.layer))


def finding_rows(items: Sequence[Reading]) -> list[FindingRow]:
    """Findings grouped by detector, the most severe first."""
    by_detector: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for r in items:
        for f in r.report.findings:
            by_detector.setdefault((f.detector, f.kind), []).append((r.where, f))
    rows = []
    for (detector, kind), claims in by_detector.items():
        claims.sort(key=lambda c: _SEVERITY[c[1].severity])
        quotes = {(q.rollout, q.text): q for _, f in claims for q in f.quotes}
        rows.append(
            FindingRow(
                detector,
                kind,
                claims[0][1].severity,
                any(f.validity for _, f in claims),
                claims,
                tuple(quotes.values())[:QUOTES_PER_FINDING],
            )
        )
    return sorted(rows, key=lambda r: (_SEVERITY[r.severity], not r.validity, r.detector))


def outcome_of(prediction: Prediction, branch: HasScores, control: HasScores) -> Outcome:
    """Look the predicted metric up in both branches: harness metric, search score or component, curve; in this order."""
    for source, look in _SOURCES:
        b, c = look(branch, prediction.metric), look(control, prediction.metric)
        if b is not None and c is not None:
            return Outcome(prediction, c, b, source)
    return Outcome(prediction, None, None, "")


def _from_health(b: HasScores, metric: str) -> float | None:
    rows = [r for r in b.metrics if r.name == metric and r.mean is not None]
    rows.sort(key=lambda r: r.split != "search")
    return rows[0].mean if rows else None


def _from_scores(b: HasScores, metric: str) -> float | None:
    name = metric.removeprefix("search/").removeprefix("search_")
    return b.mean("search") if name in ("score", "pass_rate", "search") else b.mean("search", name)


def _from_curve(b: HasScores, metric: str) -> float | None:
    means = []
    for t in b.trials:
        curve = t.finished.curve if t.finished else ()
        tail = [p[metric] for p in curve[-TAIL_STEPS:] if metric in p]
        if tail:
            means.append(sum(tail) / len(tail))
    return sum(means) / len(means) if means else None


_SOURCES = (
    ("harness metric, mean over seeds", _from_health),
    ("search split, mean over seeds", _from_scores),
    (f"learning curve, mean of the last {TAIL_STEPS} steps", _from_curve),
)

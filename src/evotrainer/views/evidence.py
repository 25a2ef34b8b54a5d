"""Health reports of several seeds side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from evotrainer.records.findings import SEVERITIES, Finding, HealthReport, MetricValue, Quote, Severity, input_label

LAYERS = ("score", "signal", "behaviour")
_STEP = re.compile(r"@(\d+)")
QUOTES_PER_FINDING = 6


@dataclass(frozen=True, slots=True)
class HealthReading:
    """One health report with where it was taken."""

    seed: int | None
    """None: over all trials of the branch together."""
    split: str
    step: int
    report: HealthReport

    @classmethod
    def of(cls, seed: int | None, report: HealthReport) -> HealthReading:
        """Split and step from the subject: `<branch>@<step> <split>` or `<branch>/<seed>@<step> <split>`."""
        head, _, split = report.subject.rpartition(" ")
        step = _STEP.search(head or report.subject)
        return cls(seed, split if head else "", int(step.group(1)) if step else 0, report)

    @property
    def where(self) -> str:
        place = "all seeds" if self.seed is None else f"seed {self.seed}"
        return f"{place}, {self.split}" if self.split else place


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric on one split, over the branch's seeds."""

    name: str
    layer: str
    unit: str
    split: str
    values: dict[int, MetricValue]
    """Seed -> value, where seeds were read one by one."""
    overall: MetricValue | None
    """The value over all seeds together, where they were read together."""
    healthy: tuple[float | None, float | None] | None
    mean: float | None
    """The overall value, or else the mean of the seeds."""
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
    severity: Severity
    validity: bool
    claims: list[tuple[str, Finding]] = field(default_factory=list)
    """(where, finding): of all rollouts together first, then of single seeds, the most severe first."""
    quotes: tuple[Quote, ...] = ()
    since: int | None = None
    """Training step at which it was first seen; None: only in evaluations."""

    @property
    def finding(self) -> Finding:
        """The finding that is shown: over all search rollouts, where these were read together."""
        return self.claims[0][1]

    @property
    def of(self) -> str:
        """What the shown finding was read from, where that is a part of the rollouts: `seed 2, train`; else empty."""
        place = self.claims[0][0]
        return "" if place in ("", "all seeds, search") else place

    @property
    def where(self) -> str:
        """`seeds 0, 1, 2 (search)`, `all seeds (search)`."""
        places: dict[str, list[str]] = {}
        for where, _ in self.claims:
            place, _, split = where.partition(", ")
            places.setdefault(split, []).append(place)
        return "; ".join(_places(names, split) for split, names in places.items())


def _places(names: Sequence[str], split: str) -> str:
    seeds = sorted({n.removeprefix("seed ") for n in names if n.startswith("seed ")}, key=lambda s: (len(s), s))
    parts = [f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"] if seeds else []
    parts += ["all seeds"] if "all seeds" in names else []
    return ", ".join(parts) + (f" ({split})" if split else "")


def readings(trials: Iterable[Any]) -> list[HealthReading]:
    """All health reports of finished trials."""
    return [HealthReading.of(t.seed, h) for t in trials if t.finished for h in t.finished.health]


def metric_rows(items: Sequence[HealthReading]) -> list[MetricRow]:
    """Metrics grouped by layer, split and name; of several steps or readings the last counts."""
    cells: dict[tuple[str, str, str], dict[int | None, tuple[int, MetricValue]]] = {}
    for r in items:
        for m in r.report.metrics:
            seeds = cells.setdefault((m.layer, r.split, m.name), {})
            if r.seed not in seeds or r.step >= seeds[r.seed][0]:
                seeds[r.seed] = (r.step, m)
    rows = [_metric_row(key, {seed: m for seed, (_, m) in seeds.items()}) for key, seeds in cells.items()]
    return sorted(rows, key=lambda r: LAYERS.index(r.layer))


def _metric_row(key: tuple[str, str, str], found: dict[int | None, MetricValue]) -> MetricRow:
    layer, split, name = key
    overall = found.get(None)
    values = dict(sorted((s, m) for s, m in found.items() if s is not None))
    known = [m.value for m in values.values() if m.value is not None]
    mean = overall.value if overall else None
    if mean is None and known:
        mean = sum(known) / len(known)
    every = list(found.values())
    return MetricRow(
        name,
        layer,
        every[0].unit,
        split,
        values,
        overall,
        next((m.healthy for m in every if m.healthy), None),
        mean,
        tuple(dict.fromkeys(input_label(x) for m in every for x in m.missing)),
    )


def latest(items: Sequence[HealthReading]) -> list[HealthReading]:
    """Of each seed and split the reading at the last step; of several at one step the last one."""
    out: dict[tuple[int | None, str], HealthReading] = {}
    for r in items:
        old = out.get((r.seed, r.split))
        if old is None or r.step >= old.step:
            out[r.seed, r.split] = r
    return list(out.values())


def first_seen(items: Sequence[HealthReading], detector: str) -> int | None:
    """First step of a training at which a detector had a finding of `warn` or `critical`; None: at none."""
    steps = [
        r.step
        for r in items
        if r.split == "train"
        for f in r.report.findings
        if f.detector == detector and not f.missing and f.severity != "info"
    ]
    return min(steps, default=None)


def finding_rows(items: Sequence[HealthReading]) -> list[FindingRow]:
    """Findings of the latest readings grouped by detector, the most severe first;
    those that only say what they lack are left out."""
    by_detector: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for where, f in _findings(latest(items)):
        if not f.missing:
            by_detector.setdefault((f.detector, f.kind), []).append((where, f))
    rows = []
    for (detector, kind), claims in by_detector.items():
        worst = min((f.severity for _, f in claims), key=SEVERITIES.index)
        # the numbers of `health` and the diagnosis: of all search rollouts; those of a seed only where there are none
        claims.sort(key=lambda c: (not c[0].startswith("all seeds"), SEVERITIES.index(c[1].severity)))
        quotes = {(q.rollout, q.text): q for _, f in claims for q in f.quotes}
        rows.append(
            FindingRow(
                detector,
                kind,
                claims[0][1].severity if claims[0][0].startswith("all seeds") else worst,
                any(f.validity for _, f in claims),
                claims,
                tuple(quotes.values())[:QUOTES_PER_FINDING],
                first_seen(items, detector),
            )
        )
    return sorted(rows, key=lambda r: (SEVERITIES.index(r.severity), not r.validity, r.detector))


def blind_rows(items: Sequence[HealthReading]) -> list[tuple[str, Finding]]:
    """(where, finding) of the detectors that lacked input."""
    return [(where, f) for where, f in _findings(latest(items)) if f.missing]


def _findings(items: Sequence[HealthReading]) -> list[tuple[str, Finding]]:
    """(where, finding); where the same place was read again, of the last reading."""
    return [(where, f) for where, r in {r.where: r for r in items}.items() for f in r.report.findings]

"""What an audit found, arranged for its page: readings with their findings, counts, headline."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from evotrainer.projections import text
from evotrainer.records.findings import SEVERITIES, Bottleneck, Finding, HealthReport, input_label
from evotrainer.records.text import counted
from evotrainer.views.evidence import FindingRow, MetricRow, metric_rows
from evotrainer.views.evidence import HealthReading as Placed

_TIME = re.compile(r"^\d{4}-\d\d-\d\dT[-+:\d]+_")


class SkippedRecord(Protocol):
    """A record or file that could not be read."""

    @property
    def where(self) -> str: ...
    @property
    def reason(self) -> str: ...


class SubjectView(Protocol):
    """What the harness says of one subject."""

    @property
    def subject(self) -> str: ...
    @property
    def health(self) -> HealthReport: ...
    @property
    def curve(self) -> Sequence[Mapping[str, float]]: ...
    @property
    def assumed(self) -> Mapping[str, Any]: ...


class AuditedSource(Protocol):
    """One source, as it was read."""

    @property
    def source(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def rollouts(self) -> int: ...
    @property
    def faults(self) -> Mapping[str, int]: ...
    @property
    def skipped(self) -> Sequence[SkippedRecord]: ...
    @property
    def readings(self) -> Sequence[SubjectView]: ...


class AuditPage(Protocol):
    """What an audit found, as far as it is shown."""

    @property
    def sources(self) -> Sequence[AuditedSource]: ...
    @property
    def unknown(self) -> Sequence[SkippedRecord]: ...


@dataclass(frozen=True, slots=True, eq=False)
class ReadingView:
    """One reading, ready to be shown."""

    id: str
    index: int
    """Of its source."""
    source: AuditedSource
    label: str
    """Name of the source, shortened."""
    reading: SubjectView
    findings: list[FindingRow]
    metrics: list[MetricRow]
    blind: list[Finding]

    @property
    def name(self) -> str:
        """The subject where a source has several, else the source."""
        return self.reading.subject if len(self.source.readings) > 1 else self.label

    @property
    def brief(self) -> str:
        """The name for a narrow place: no folders, no leading time."""
        return self.name if len(self.source.readings) > 1 else _TIME.sub("", self.label.rpartition(os.sep)[2])

    @property
    def worst(self) -> str:
        return self.findings[0].severity if self.findings else "none"

    @property
    def health(self) -> HealthReport:
        return self.reading.health

    @property
    def bottlenecks(self) -> Sequence[Bottleneck]:
        return self.health.bottlenecks

    @property
    def outside(self) -> list[MetricRow]:
        """Metrics outside their healthy range."""
        return [m for m in self.metrics if m.flag in ("low", "high")]

    @property
    def missing(self) -> dict[str, list[str]]:
        """Field that rollouts lack -> detectors and metrics that need it."""
        out: dict[str, list[str]] = {}
        for name, fields in [(f.detector, f.missing) for f in self.blind] + [(m.name, m.missing) for m in self.metrics]:
            for f in fields:
                if name not in out.setdefault(label := input_label(f), []):
                    out[label].append(name)
        return dict(sorted(out.items()))

    @property
    def assumed(self) -> list[tuple[str, str]]:
        """(what, value and how it was inferred)"""
        out = []
        for what, value in self.reading.assumed.items():
            if what == "proxy" and isinstance(value, list | tuple) and len(value) == 2:
                out.append(
                    ("Proxy pair", f"{value[0]} stands for what is paid, {value[1]} for what is meant (by name)")
                )
            elif what == "paid" and isinstance(value, Mapping):
                paid = " + ".join(f"{text.number(w)} × {text.one_line(c, 60)}" for c, w in value.items()) or "nothing"
                out.append(("Reward", f"= {paid} (fits every graded rollout exactly)"))
            else:
                out.append((what, text.value(value)))
        return out


@dataclass(frozen=True, slots=True)
class AuditView:
    """The whole page."""

    audit: AuditPage
    readings: list[ReadingView]
    """All, in the order of their sources."""
    about: Mapping[str, str]
    remedies: Mapping[str, Sequence[str]]
    labels: list[str] = field(default_factory=list)

    @property
    def rollouts(self) -> int:
        return sum(s.rollouts for s in self.audit.sources)

    @property
    def ranked(self) -> list[ReadingView]:
        """The worst first."""

        def rank(v: ReadingView) -> tuple[int, float]:
            return rank_of(v.worst), -max((b.score for b in v.bottlenecks), default=0.0)

        return sorted(self.readings, key=rank)

    @property
    def counts(self) -> dict[str, int]:
        """Findings by severity, every severity named."""
        n = Counter(f.severity for v in self.readings for f in v.findings)
        return {s: n[s] for s in SEVERITIES}

    @property
    def worst(self) -> str:
        return next((s for s, n in self.counts.items() if n), "none")

    @property
    def faults(self) -> dict[str, int]:
        out: Counter[str] = Counter()
        for s in self.audit.sources:
            out.update(s.faults)
        return dict(out.most_common())

    @property
    def skipped(self) -> list[SkippedRecord]:
        """Files of no known format, then records that could not be read."""
        return [*self.audit.unknown, *(x for s in self.audit.sources for x in s.skipped)]

    @property
    def kinds(self) -> list[tuple[str, str, list[ReadingView]]]:
        """(kind, worst severity, readings with it), the worst first."""
        found: dict[str, tuple[str, list[ReadingView]]] = {}
        for v in self.ranked:
            for f in v.findings:
                severity, where = found.get(f.kind, (f.severity, []))
                found[f.kind] = (min(severity, f.severity, key=rank_of), where if v in where else [*where, v])
        return sorted(((k, s, w) for k, (s, w) in found.items()), key=lambda x: (rank_of(x[1]), -len(x[2]), x[0]))

    @property
    def headline(self) -> str:
        n = self.counts
        named = {"critical": "critical finding", "warn": "warning", "info": "note"}
        parts = [counted(n[s], named[s]) for s in SEVERITIES if n[s]]
        what = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or "No finding"
        return f"{what} in {counted(self.rollouts, 'rollout')}"


def view_of(audit: AuditPage, remedies: Mapping[str, Sequence[str]], about: Mapping[str, str]) -> AuditView:
    """Every reading with its findings by severity and its metrics."""
    labels = short_names([s.source for s in audit.sources])
    readings = []
    for i, (source, label) in enumerate(zip(audit.sources, labels, strict=True)):
        for k, r in enumerate(source.readings):
            rows = [
                FindingRow(f.detector, f.kind, f.severity, f.validity, [("", f)], f.quotes) for f in r.health.claims
            ]
            blind = [f for f in r.health.findings if f.missing]
            metrics = metric_rows([Placed(None, "", 0, r.health)])
            readings.append(ReadingView(f"s{i}-{k}", i, source, label, r, rows, metrics, blind))
    return AuditView(audit, readings, about, remedies, labels)


def short_names(sources: Sequence[str]) -> list[str]:
    """Paths without the folder that all of them share, else their last parts, as many as tell them apart."""
    try:
        common = os.path.commonpath([os.path.dirname(s) for s in sources]) if len(sources) > 1 else ""
    except ValueError:
        common = ""
    if common.strip(os.sep):
        return [os.path.relpath(s, common) for s in sources]
    parts = [Path(s).parts or (s,) for s in sources]
    ends = ([os.path.join(*p[-n:]) for p in parts] for n in range(2, max(map(len, parts), default=1) + 1))
    return next((e for e in ends if len(set(e)) == len(set(sources))), list(sources))


def rank_of(severity: str) -> int:
    """Place in the order of severities, the worst first."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)

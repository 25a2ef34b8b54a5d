"""Many readings on one screen: what was found, kind by kind, and where."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from evotrainer.harness.coverage import OVER_TIME
from evotrainer.harness.render import metric_value, quote_line
from evotrainer.records.findings import SEVERITIES, Finding, input_label
from evotrainer.records.output import line
from evotrainer.records.text import clean, counted, cut
from evotrainer.studies.audit.engine import SourceReport
from evotrainer.studies.audit.reading import SubjectReading
from evotrainer.views.audit_model import short_names

MANY = 6
"""Readings from which they are told kind by kind instead of one by one."""
KINDS = 16
"""Kinds of findings that are told; the worst first."""
PLACE = 60
"""Characters of a reading's name in the table."""
NAMED = 3
"""Places named for each kind."""
ROWS = 24
"""Readings that a table has room for; of more, medians are told."""
COLUMNS = {"accuracy": "accuracy", "reward": "reward", "proxy_gap": "gap", "frac_reward_zero_std": "dead groups"}
"""Of that table: metric -> heading."""
FIGURE = re.compile(r" [\d.]+%?")
MEDIANS = ("accuracy", "reward", "frac_reward_zero_std", "completions/mean_length", "turns", "tool_failure_rate")


def overview(sources: Sequence[SourceReport]) -> list[str]:
    """Lines, at most some 80 whatever the number of sources."""
    labels = short_names([s.source for s in sources]) if len(sources) > 1 else [""]
    named = list(zip(labels, sources, strict=True))
    readings = [(_place(label, s, r), r) for label, s in named for r in s.readings]
    formats = Counter(s.format for s in sources)
    rollouts = sum(s.rollouts for s in sources)
    formats_text = ", ".join(f"{n:,} {f}" for f, n in formats.most_common(6))
    out = [
        f"# {counted(len(sources), 'source')} ({formats_text}): {counted(rollouts, 'rollout')} in "
        f"{counted(len(readings), 'reading')}",
        "",
    ]
    faults: Counter[str] = Counter()
    for s in sources:
        faults.update(s.faults)
    if faults:
        out += [f"Infrastructure faults: {', '.join(f'{n:,}x {line(k)}' for k, n in faults.most_common())}.", ""]
    out += _findings(readings)
    out += _table(readings) if len(readings) <= ROWS else _medians([r for _, r in readings])
    blind: Counter[str] = Counter()
    for _, r in readings:
        blind.update(missing_fields(r).keys() - OVER_TIME)
    if blind:
        n = len(readings)
        fields = [x if k == n else f"{x} (in {k:,} of {n:,})" for x, k in blind.most_common(12)]
        out.append(f"- not recorded, so not looked at: {line(', '.join(fields))}")
    skipped = [(label, x) for label, s in named for x in s.skipped]
    if skipped:
        out += ["", f"Skipped: {len(skipped):,}"]
        out += [line(cut(f"- {x.where}: {x.reason}", 300)) for _, x in skipped[:NAMED]]
    return [*out, "", "Every reading with its quotes: --all, or --html FILE; everything: --json.", ""]


def missing_fields(r: SubjectReading) -> dict[str, list[str]]:
    """What was not recorded, in words -> the detectors that could therefore not look."""
    out: dict[str, list[str]] = {}
    for name, fields in r.not_looked_at.items():
        for x in fields:
            out.setdefault(input_label(x), []).append(name)
    for f in r.health.findings:
        for x in f.missing if f.detector not in r.not_looked_at else ():
            out.setdefault(input_label(x), []).append(f"{f.detector} in part")
    return out


def _place(label: str, s: SourceReport, r: SubjectReading) -> str:
    return f"{label} {r.subject}".strip() if len(s.readings) > 1 else label


def _findings(readings: Sequence[tuple[str, SubjectReading]]) -> list[str]:
    kinds: dict[tuple[str, str, str], list[tuple[str, Finding]]] = {}
    for place, r in readings:
        for f in r.health.findings:
            if not f.missing:
                kinds.setdefault((f.severity, f.detector, _compared(f)), []).append((place, f))
    ranked = sorted(kinds.items(), key=lambda kv: (*kv[1][0][1].rank, -len(kv[1]), kv[0][1:]))
    out = []
    for (severity, detector, _), found in ranked[:KINDS]:
        # the one that tells most stands for the kind: the most rollouts hit, else the largest number that is compared
        worst = max(found, key=lambda x: (x[1].numbers.get("hits", 0.0), next(iter(x[1].numbers.values()), 0.0)))
        mark = f"{severity}, validity" if worst[1].validity else severity
        n = len({p for p, _ in found})
        out.append(f"- [{mark}] {line(detector)}, in {n:,} of {len(readings):,}; e.g. {line(worst[1].claim)}")
        first = [worst[0], *(p for p, _ in found if p != worst[0])]
        places = list(dict.fromkeys(first))
        more = f", and {len(places) - NAMED:,} more" if len(places) > NAMED else ""
        out.append(f"  - where: {line(clean(', '.join(places[:NAMED]), 300))}{more}")
        if q := next(iter(worst[1].quotes), None):
            out.append(quote_line(q, 160))
    if len(ranked) > KINDS:
        out.append(f"- and {len(ranked) - KINDS} more kinds, none worse: --all")
    return [*(out or ["No finding."]), ""]


def _compared(f: Finding) -> str:
    """What a finding compares, as `visible against hidden`: two pairs of one detector are two kinds."""
    return FIGURE.sub("", f.claim.partition(":")[0]) if {"proxy", "true"} <= f.numbers.keys() else ""


def _table(readings: Sequence[tuple[str, SubjectReading]]) -> list[str]:
    """A row per reading: rollouts, headline metrics, findings by severity."""
    rows = [["reading", "rollouts", *COLUMNS.values(), *SEVERITIES]]
    for place, r in readings:
        values = {m.name: metric_value(m) for m in r.health.metrics if m.name in COLUMNS and m.value is not None}
        found: Counter[str] = Counter(f.severity for f in r.health.findings if not f.missing)
        rows.append(
            [
                line(clean(place, PLACE)).expandtabs(1),
                f"{r.health.rollouts:,}",
                *(values.get(name, "-") for name in COLUMNS),
                *(str(found[s] or "-") for s in SEVERITIES),
            ]
        )
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: the first column to the left, the others to the right."""
    first, *rest = (max(map(len, column)) for column in zip(*rows, strict=True))
    return ["  ".join([row[0].ljust(first), *(x.rjust(w) for x, w in zip(row[1:], rest, strict=True))]) for row in rows]


def _medians(readings: Sequence[SubjectReading]) -> list[str]:
    """Headline metrics over the readings that have them."""
    out = []
    for name in MEDIANS:
        x = [v for r in readings if (v := r.health.metric(name)) is not None]
        if x:
            low, mid, high = np.percentile(x, [0, 50, 100])
            out.append(f"- {name}: median {mid:.3g} of {len(x):,} readings ({low:.3g} to {high:.3g})")
    return out

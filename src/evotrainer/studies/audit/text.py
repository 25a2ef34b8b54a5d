"""An audit as text and as JSON."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from evotrainer.harness import render_text
from evotrainer.harness.coverage import OVER_TIME, RULES_ALONE
from evotrainer.harness.registry import DETECTORS
from evotrainer.harness.render import LAYERS, finding_lines, metric_line
from evotrainer.importers.forms import base_name
from evotrainer.projections.reader import READER
from evotrainer.records.findings import Finding
from evotrainer.records.output import line
from evotrainer.records.text import clean, counted, cut
from evotrainer.studies.audit.engine import RolloutAudit, SourceReport
from evotrainer.studies.audit.overview import MANY, aligned, missing_fields, overview
from evotrainer.studies.audit.reading import SubjectReading

NAMED_SKIPS = 5
QUOTES = 2
ALL_QUOTES = 64
"""Of a finding with --all: as many as the facts of programs that findings keep."""
SHOWN_FIRST = 5
"""Kinds of finding that are named before the sources."""
ASKS = "suspected_fault"
"""The finding that is a question to the user."""
KEY_METRICS = ("accuracy", "reward", "pass@8", "frac_reward_zero_std", "completions/mean_length", "tool_failure_rate")


def render_audit(audit: RolloutAudit, full: bool = False) -> str:
    """Source by source: what was read, what is wrong (worst first) with quotes, what could not be read; of many
    readings kind by kind, and then where.

    `full`: every metric of every subject; otherwise the headline ones and those outside their healthy range.
    """
    readings = sum(len(s.readings) for s in audit.sources)
    many = not full and readings >= MANY
    blocks = ["\n".join(overview(audit.sources))] if many else [_source(s, full) for s in audit.sources]
    if audit.unknown:
        blocks.append(_strangers(audit.unknown))
    head = [
        _total(audit),
        *_read_as(audit),
        *_questions(audit),
        *(f"- {x}" for x in instrument_lines(audit)),
        *([] if many or readings == 1 else _worst(audit)),
    ]
    return "\n".join([*head, "", *blocks])


def instrument_lines(audit: RolloutAudit) -> list[str]:
    """Which instruments looked, at how much, and how to add the others: what none looked at is not clean."""
    if not audit.rollouts:
        return []
    looked: Counter[str] = Counter()
    for s in audit.sources:
        looked.update(s.could_look)
    counts = ", ".join(f"{name} at {n:,}" for name, n in looked.items())
    rules = f"rules could look, of {counted(audit.rollouts, 'rollout')}: {counts}; {RULES_ALONE}"
    programs = ["no program was run; --run runs them in the sandbox"] if looked["grader_bypass"] else []
    read = [line(r.subject) for s in audit.sources for r in s.readings if r.health.harness == READER]
    unread = "not judged by a reader; --reader model=NAME asks a model about a sample (docs/reader.md)"
    if audit.unread:
        unread = f"not judged by a reader: it was asked and gave no valid answer ({line(cut(audit.unread, 200))})"
    return [rules, *(_programs_run(audit) or programs), *(read[:SHOWN_FIRST] or [unread])]


def _read_as(audit: RolloutAudit) -> list[str]:
    """Which columns were read as which fields, each way once: nothing foreign is silently taken for something else."""
    ways: dict[tuple[str, str], list[str]] = {}
    for s in audit.sources:
        if s.read_as:
            what = s.read_as.partition("; not read")[0]
            ways.setdefault((base_name(s.format), what), []).append(s.read_as)
    out = []
    for (format, _), labels in list(ways.items())[:SHOWN_FIRST]:
        of = f" ({len(labels)} sources)" if len(labels) > 1 else ""
        out.append(line(clean(f"- read as {format}{of}: {labels[0]}", 700)))
    if len(ways) > SHOWN_FIRST:
        out.append(f"- read in {len(ways) - SHOWN_FIRST} more ways (all are in --json)")
    return out


def _programs_run(audit: RolloutAudit) -> list[str]:
    """What probes could run, and why not the rest."""
    ran = [s.run for s in audit.sources if s.run is not None]
    if not ran:
        return []
    tried, done, facts, nominated = (sum(getattr(x, k) for x in ran) for k in ("tried", "ran", "facts", "nominated"))
    why: Counter[str] = Counter()
    for x in ran:
        why.update(x.not_run)
    some = f" (of {n:,}, drawn evenly)" if (n := sum(x.of for x in ran)) > tried else ""
    line_text = f"probes could run {done:,} of {tried:,} rollouts' programs{some}: {facts:,} with certain facts"
    line_text += f", {nominated:,} nominated" if nominated else ""
    rest = "; ".join(f"{n:,} {k}" for k, n in why.most_common(8)) + ("; and more" if len(why) > 8 else "")
    return [line(clean(line_text + (f"; not run, so not judged: {rest}" if rest else ""), 700))]


def _total(audit: RolloutAudit) -> str:
    skipped = sum(len(s.skipped) for s in audit.sources) + len(audit.unknown)
    if not audit.read:
        return f"Nothing could be read, so nothing was audited; skipped: {skipped:,}"
    worst = {"": "no finding"}.get(audit.worst(), f"worst finding: {audit.worst()}")
    faults = sum(sum(s.faults.values()) for s in audit.sources)
    return (
        f"{counted(audit.rollouts, 'rollout')} in {counted(len(audit.sources), 'source')}; "
        f"{counted(faults, 'infrastructure fault')} (in no rate), {skipped:,} record{'s' * (skipped != 1)} or "
        f"file{'s' * (skipped != 1)} skipped; {worst}"
    )


def _worst(audit: RolloutAudit) -> list[str]:
    """What questions the scores, and the findings of the worst severity, each kind once with where it is: of several
    readings the answer before the evidence."""
    kinds: dict[tuple[str, str], list[tuple[Finding, str]]] = {}
    found = [(f, r.subject) for s in audit.sources for r in s.readings for f in r.health.claims]
    for f, subject in sorted(found, key=lambda x: x[0].rank):
        if f.severity != "info" and f.detector != ASKS and (f.validity or f.severity == audit.worst()):
            kinds.setdefault((f.severity, f.detector), []).append((f, subject))
    out = []
    for (severity, detector), ((f, subject), *rest) in list(kinds.items())[:SHOWN_FIRST]:
        at = line(clean(subject or "all rollouts", 120)) + (f", and {len(rest)} more" if rest else "")
        out.append(f"- [{severity}] {line(detector)}: {line(cut(f.claim, 200))} (in {at})")
    return out + [f"- and {len(kinds) - SHOWN_FIRST} more kinds, below"] * (len(kinds) > SHOWN_FIRST)


def _questions(audit: RolloutAudit) -> list[str]:
    """What the audit asks the user: what may be faults, each once, before anything that counts them as failures."""
    asked = {f.claim: f for s in audit.sources for r in s.readings for f in r.health.findings if f.detector == ASKS}
    most = sorted(asked.values(), key=lambda f: -f.numbers["hits"])
    out = [f"- [{f.severity}] {ASKS}: {line(f.claim)}" for f in most[:SHOWN_FIRST]]
    return out + [f"- and {len(most) - SHOWN_FIRST} more questions, below"] * (len(most) > SHOWN_FIRST)


def _source(s: SourceReport, full: bool) -> str:
    lines = [f"# {line(clean(s.source, 1000))} ({base_name(s.format)}, {counted(s.rollouts, 'rollout')})", ""]
    if s.faults:
        faults = ", ".join(f"{n:,}x {line(k)}" for k, n in sorted(s.faults.items()))
        lines.append(f"Infrastructure faults: {faults}.\n")
    if not s.readings:
        lines.append("Nothing to read.\n")
    for r in s.readings:
        every = full and not r.columns
        lines.append(f"{render_text(r.health, ALL_QUOTES)}{_blind(r, full)}\n" if every else _reading(r))
    if s.skipped:
        lines.append(_skips("Skipped", s.skipped))
    return "\n".join(lines)


def _reading(r: SubjectReading) -> str:
    h = r.health
    many = f": {counted(h.rollouts, 'rollout')} in {counted(h.groups, 'group')}" if h.rollouts or not r.curve else ""
    lines = [f"## {line(clean(h.subject))}{many}", ""]
    if not h.claims:
        lines.append("No finding.")
    for f in h.claims:
        lines += finding_lines(f, QUOTES, 200)
    if h.bottlenecks:
        lines.append("Ranked: " + ", ".join(f"{b.name} (severity {b.score:.2f})" for b in h.bottlenecks))
    shown = [m for m in h.metrics if m.value is not None and (m.name in KEY_METRICS or not m.in_range)]
    shown.sort(key=lambda m: LAYERS.index(m.layer))
    lines += [metric_line(m) for m in shown[:16]]
    for what, value in r.assumed.items():
        inferred = " -> ".join(value) if what == "proxy" else ", ".join(f"{k} {v:g}" for k, v in value.items())
        lines.append(f"- taken from the data: {what} {line(inferred)}")
    return "\n".join([*lines, *_curve_table(r), *filter(None, [_blind(r)])]) + "\n"


def _curve_table(r: SubjectReading) -> list[str]:
    """Of a learning curve alone: the numbers of each column that was read, and what was not read."""
    if not r.columns:
        return []
    rows = [["column", "first", "last", "min", "at step", "max", "at step", "steps"]]
    for c in r.columns:
        known = (c[k] for k in ("first", "last", "min", "min_at", "max", "max_at"))
        numbers = ("-" if x is None else f"{x:.4g}" for x in known)
        rows.append([cut(line(clean(c["column"], 200)), 48), *numbers, f"{c['steps']:,}"])
    bad = ["", *(f", {n:,} NaN or infinite" if (n := c["not_finite"]) else "" for c in r.columns)]
    out = ["", *map("".join, zip(aligned(rows), bad, strict=True))]
    return [*out, *([""] if r.notes else []), *(f"- {line(clean(n, 1000))}" for n in r.notes)]


def _blind(r: SubjectReading, full: bool = False) -> str:
    """What could not be read, what was not recorded, and how many detectors could therefore not look; which, and what
    only trainings have, if `full`."""
    lacks = missing_fields(r)
    out = [f"- {f.detector}: {line(f.claim)}" for f in r.health.findings if f.missing and f.numbers]
    shown = sorted(lacks.keys() if full else lacks.keys() - OVER_TIME)
    if shown and full:
        names = ", ".join(f"{x} ({', '.join(sorted(lacks[x]))})" for x in shown)
        out.append(f"- not recorded, so not looked at: {line(names)}")
    elif shown:
        n = len({d for x in shown for d in lacks[x]})
        names = f"{line(', '.join(shown))} ({n} of {len(DETECTORS)} detectors; --all)"
        out.append(f"- not recorded, so not looked at: {names}")
    return "\n".join(out)


def _skips(title: str, skipped: tuple[Any, ...], kinds: str = "") -> str:
    """How many were skipped and why, each reason once with the first place."""
    why: dict[str, list[str]] = {}
    for s in skipped:
        why.setdefault(s.reason, []).append(s.where)
    lines = [f"{title}: {len(skipped):,}{kinds}"]
    for reason, places in list(why.items())[:NAMED_SKIPS]:
        more = f" (and {len(places) - 1:,} more for this reason)" if len(places) > 1 else ""
        lines.append(line(clean(f"- {places[0]}: {reason}{more}", 2000)))
    left = sum(len(places) for places in list(why.values())[NAMED_SKIPS:])
    if left:
        lines.append(f"- ... and {left:,} more (all are in --json)")
    return "\n".join(lines) + "\n"


def _strangers(unknown: tuple[Any, ...]) -> str:
    """Files that no importer knows: how many of which kind, and each reason once."""
    kinds = Counter(Path(x.where).suffix.lower() or "without a suffix" for x in unknown).most_common(8)
    kinds_text = f" ({', '.join(f'{n:,} {k}' for k, n in kinds)})" if len(unknown) > NAMED_SKIPS else ""
    return _skips("Files of no known format", unknown, kinds_text)


def audit_json(audit: RolloutAudit) -> dict[str, Any]:
    """Everything as plain data; `HealthReport` fields as published in docs/harness.md."""
    from pydantic_core import to_jsonable_python

    found = {"sources": audit.sources, "unknown": audit.unknown, "fault_columns": audit.faults}
    return {"worst": audit.worst(), "rollouts": audit.rollouts, **to_jsonable_python(found)}

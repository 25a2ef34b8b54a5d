"""`evotrainer audit A --against B`: two sets of rollouts of the same tasks, paired by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.harness import Batch
from evotrainer.harness.columns.numerics import Floats, Ints, group_means
from evotrainer.records.output import line
from evotrainer.records.text import clean, counted
from evotrainer.studies.audit.engine import RolloutAudit
from evotrainer.studies.audit.reading import batch_of, subjects_of

CONFIDENCE = 0.95
NAMED = 5
"""Unpaired tasks of a side that are named."""
ORDER = {"": 0, "info": 1, "warn": 2, "critical": 3}
SHARES = (
    "truncated",
    "special_casing",
    "grader_bypass",
    "test_tampering",
    "answer_leak",
    "runs_tests",
    "tool_failures",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One quantity, A minus B: mean over tasks of the difference of the task's means."""

    name: str
    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    """95% t interval over tasks; None for fewer than two."""
    tasks: int

    moved: bool
    """Does the interval leave out 0?"""


@dataclass(frozen=True, slots=True)
class Against:
    """A compared with B."""

    a: str
    b: str
    rollouts: tuple[int, int]
    tasks: int
    """Tasks of both sides."""
    differences: tuple[Difference, ...]
    counts: Mapping[str, int]
    """better, worse, alike: tasks by their mean outcome (reward where no outcome is known)."""
    only_a: tuple[int, tuple[str, ...]]
    only_b: tuple[int, tuple[str, ...]]
    """Unpaired tasks: how many, and the first by name."""
    findings: tuple[tuple[str, str, str], ...]
    """(detector, severity in A, severity in B), "" for none; those that differ."""
    faults: tuple[int, int]
    subjects: tuple[int, int]
    """Policies, branches and splits of each side that are read together."""


def compare(a: RolloutAudit, b: RolloutAudit, names: tuple[str, str]) -> Against:
    """Pair two audits (read with `keep`) by task; ConfigError where no task is in both."""
    sides = [_side(x) for x in (a, b)]
    batches = [s[0] for s in sides]
    keys = [x.traits.keys["task"] for x in batches]
    common = np.intersect1d(keys[0], keys[1])
    if not len(common):
        have = " and ".join(
            f"{name} has {len(np.unique(k))} ({', '.join(_names(x, np.unique(k)[:3]))})"
            for name, x, k in zip("AB", batches, keys, strict=True)
        )
        raise ConfigError(
            f"--against: no task is in both: {have}; tasks are paired by their id, give both sides the same ones"
        )
    quantities = [_quantities(x) for x in batches]
    found = []
    for name in dict.fromkeys((*quantities[0], *quantities[1])):
        if name in quantities[0] and name in quantities[1]:
            means = [_by_task(q[name], k, common) for q, k in zip(quantities, keys, strict=True)]
            if d := _difference(name, *means):
                found.append(d)
    only = [np.setdiff1d(k, common) for k in keys]
    unpaired = [(len(o), tuple(_names(x, o[:NAMED]))) for o, x in zip(only, batches, strict=True)]
    return Against(
        a=names[0],
        b=names[1],
        rollouts=(batches[0].n, batches[1].n),
        tasks=len(common),
        differences=tuple(found),
        counts=_counts(quantities, keys, common),
        only_a=unpaired[0],
        only_b=unpaired[1],
        findings=_findings(a, b),
        faults=(batches[0].n_faults + sides[0][2], batches[1].n_faults + sides[1][2]),
        subjects=(sides[0][1], sides[1][1]),
    )


def _side(x: RolloutAudit) -> tuple[Batch, int, int]:
    """(all live rollouts of an audit, how many subjects they are of, faults)."""
    batches = [
        batch_of(whole, traits, rows)
        for whole, traits in zip(x.opened, x.traits, strict=True)
        for _, rows in subjects_of(traits)
    ]
    return Batch.joined(batches), len(batches), sum(b.n_faults for b in batches)


def _names(batch: Batch, keys: Ints) -> list[str]:
    rows = [int(np.flatnonzero(batch.traits.keys["task"] == k)[0]) for k in keys]
    return sorted(line(clean(t, 60)) for t in batch.column("task", rows))


def _quantities(b: Batch) -> dict[str, Floats]:
    """What is compared, one value a rollout; only what is known of some rollout."""

    def above(name: str) -> Floats:
        x = b.trait(name)
        return np.where(np.isnan(x), np.nan, (x > 0).astype(float))

    acts, ok = np.where(b.acting, 1.0, np.nan), b.traits.calls["ok"]
    out = {
        "outcome": b.truth,
        "reward": b.reward,
        **{f"component {c}": b.component(c) for c in b.component_names},
        "tokens": b.tokens,
        "words": b.trait("words"),
        "turns": b.trait("turns"),
        "actions": b.trait("actions") * acts,
        "edits": b.trait("edits") * acts,
        "runs_tests": above("tests") * acts,
        "tool_failures": group_means(np.where(ok < 0, np.nan, ok == 0), b.traits.calls["row"], b.n),
        "truncated": b.truncated,
        "repetition": b.trait("repetition"),
        "special_casing": above("special"),
        "grader_bypass": above("bypass"),
        "test_tampering": above("tampers"),
        "answer_leak": above("leaks"),
        "entropy": b.entropy,
        "mean_logprob": b.mean_logprob,
    }
    return {k: v for k, v in out.items() if np.isfinite(v).any()}


def _by_task(x: Floats, key: Ints, common: Ints) -> Floats:
    """Mean of the known values of each common task, NaN where none is."""
    at = np.minimum(np.searchsorted(common, key), len(common) - 1)
    return group_means(np.where(common[at] == key, x, np.nan), at, len(common))


def _difference(name: str, a: Floats, b: Floats) -> Difference | None:
    from scipy.special import stdtrit

    both = np.isfinite(a) & np.isfinite(b)
    n = int(both.sum())
    if not n:
        return None
    d = a[both] - b[both]
    mean = float(d.mean())
    low = high = None
    if n > 1:
        half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * float(d.std(ddof=1)) / n**0.5
        low, high = mean - half, mean + half
    moved = low is not None and high is not None and not low <= 0.0 <= high
    return Difference(name, float(a[both].mean()), float(b[both].mean()), mean, low, high, n, moved)


def _counts(quantities: Sequence[Mapping[str, Floats]], keys: Sequence[Ints], common: Ints) -> dict[str, int]:
    what = "outcome" if all("outcome" in q for q in quantities) else "reward"
    if not all(what in q for q in quantities):
        return {}
    a, b = (_by_task(q[what], k, common) for q, k in zip(quantities, keys, strict=True))
    d = (a - b)[np.isfinite(a - b)]
    better, worse = int((d > 1e-9).sum()), int((d < -1e-9).sum())
    return {"better": better, "worse": worse, "alike": len(d) - better - worse}


def _findings(a: RolloutAudit, b: RolloutAudit) -> tuple[tuple[str, str, str], ...]:
    worst: list[dict[str, str]] = [{}, {}]
    for side, x in zip(worst, (a, b), strict=True):
        for f in (f for s in x.sources for r in s.readings for f in r.health.findings if not f.missing):
            if ORDER[f.severity] > ORDER[side.get(f.detector, "")]:
                side[f.detector] = f.severity
    names = sorted({*worst[0], *worst[1]})
    rows = [(n, worst[0].get(n, ""), worst[1].get(n, "")) for n in names]
    return tuple(sorted((r for r in rows if r[1] != r[2]), key=lambda r: -max(ORDER[r[1]], ORDER[r[2]])))


def against_lines(c: Against) -> list[str]:
    """The comparison as text: outcome and reward first, then what changed in behaviour."""
    out = [
        f"A: {line(c.a)}, {counted(c.rollouts[0], 'rollout')}, {counted(c.faults[0], 'fault')}",
        f"B: {line(c.b)}, {counted(c.rollouts[1], 'rollout')}, {counted(c.faults[1], 'fault')}",
        f"{c.tasks:,} tasks of both, each counts once; A minus B with 95% t intervals over tasks",
    ]
    out += [f"note: {n} policies, branches or splits of {x} are read together" for x, n in _several(c)]
    if c.counts:
        out.append(f"tasks: {c.counts['better']} better in A, {c.counts['worse']} worse, {c.counts['alike']} alike")
    score = [d for d in c.differences if d.name in ("outcome", "reward")]
    rest = [d for d in c.differences if d not in score]
    moved = [d for d in rest if d.moved]
    out += ["", f"  {'':24}{'A':>10}{'B':>10}{'A - B':>10}  interval", *(_row(d) for d in score)]
    heading = f"changed in behaviour: {len(moved)} of {len(rest)} quantities leave out 0"
    out += ["", f"{heading} (of {len(rest)} that did not change, {len(rest) * (1 - CONFIDENCE):.1f} would by chance)"]
    out += [_row(d) for d in moved] or ["  nothing"]
    if c.findings:
        out += ["", "findings that differ, A against B:"]
        out += [f"  {n:24}{x or '-':>10}{y or '-':>10}" for n, x, y in c.findings]
    for side, (n, names) in (("A", c.only_a), ("B", c.only_b)):
        if n:
            more = f", and {n - len(names)} more" if n > len(names) else ""
            out.append(f"only in {side}, not compared: {counted(n, 'task')}: {', '.join(names)}{more}")
    return out


def _several(c: Against) -> list[tuple[str, int]]:
    return [(side, n) for side, n in zip("AB", c.subjects, strict=True) if n > 1]


def _row(d: Difference) -> str:
    share = d.name in (*SHARES, "outcome")

    def shown(x: float, sign: str = "") -> str:
        return f"{100 * x:{sign}.1f}%" if share else f"{x:{sign}.4g}"

    interval = (
        f"[{shown(d.low, '+')}, {shown(d.high, '+')}]" if d.low is not None and d.high is not None else "one task"
    )
    name = line(clean(d.name, 24))
    return f"  {name:24}{shown(d.a):>10}{shown(d.b):>10}{shown(d.difference, '+'):>10}  {interval}" + (
        f" on {d.tasks} tasks" if d.tasks > 1 else ""
    )


def against_json(c: Against) -> dict[str, Any]:
    from pydantic_core import to_jsonable_python

    findings = [{"detector": n, "a": x, "b": y} for n, x, y in c.findings]
    only = {k: {"tasks": n, "first": first} for k, (n, first) in (("only_a", c.only_a), ("only_b", c.only_b))}
    return {**to_jsonable_python(c), "findings": findings, **only}

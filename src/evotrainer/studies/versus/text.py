"""The comparison of two sides as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from evotrainer.judge.versus import told_effect, told_size
from evotrainer.records.output import line
from evotrainer.records.text import clean, counted
from evotrainer.studies.versus.compare import SHARES, Difference, Versus
from evotrainer.studies.versus.seeds import SideLogs
from evotrainer.views.audit_model import short_names

SAID = {
    "better": ("A is better than B", "A's outputs are better than B's"),
    "no worse": ("A is no worse than B", "A's outputs are no worse than B's"),
    "worse": ("A is worse than B", "A's outputs are worse than B's"),
    "undecided": ("whether A is better or worse than B is open", "whether A's outputs are better or worse is open"),
}
"""Word -> what is said of two recipes, and of two policies alone."""


def said(v: Versus) -> str:
    return SAID[v.comparison.word][0 if v.comparison.of_recipes else 1]


def interval_of(v: Versus) -> str:
    """How the interval is meant."""
    e = v.comparison.effect
    seeds = f"{len(v.a.seeds)} against {counted(len(v.b.seeds), 'training')}"
    how = f"{seeds}, seeds as clusters" if len(v.a.seeds) + len(v.b.seeds) > 2 else seeds
    return (
        f"{e.confidence:.0%} interval over {e.tasks:,} tasks ({how}); each bound errs in {(1 - e.confidence) / 2:.3g}"
    )


def least(v: Versus) -> str:
    return "unknown, since nothing varied" if v.comparison.least is None else told_size(v.comparison.least, v.shares)


def after(v: Versus) -> list[str]:
    """What the comparison could have seen, and what would decide."""
    c = v.comparison
    out = [f"least difference that it could have seen (power 80%): {least(v)}"]
    if c.seeds_wanted is not None:
        out.append(f"{c.seeds_wanted} trainings a side would decide if the difference stays as it is")
    return out


def versus_lines(v: Versus) -> list[str]:
    """The word first, then its ground, then what else changed."""
    c = v.comparison
    out = [f"{c.word}: {said(v)} by {v.score}: {c.reason}", ""]
    short = iter(short_names([s.name for x in (v.a, v.b) for s in x.seeds]))
    out += [
        _side("A", v.a, short),
        _side("B", v.b, short),
        f"difference: {told_effect(c.effect, v.shares)}, {interval_of(v)}",
    ]
    out += [*after(v), *(f"note: {x}" for x in v.notes)]
    tasks = f"tasks: {v.counts['better']} better in A, {v.counts['worse']} worse, {v.counts['alike']} alike"
    out.append(f"{tasks}; {v.tasks[0]:,} of {v.tasks[1]:,} scored by all")
    out += [f"not compared: {x}" for x in unpaired(v)]
    shown = [d for d in v.behaviour if d.name in ("outcome", "reward", f"component {v.score}")]
    rest = [d for d in v.behaviour if d not in shown]
    moved = [d for d in rest if d.moved]
    out += ["", f"  {'':24}{'A':>10}{'B':>10}{'A - B':>10}  95% interval", *map(_row, shown)]
    chance = f"of {len(rest)} that did not change, {len(rest) * 0.05:.1f} would by chance"
    out += ["", f"changed in behaviour: {len(moved)} of {len(rest)} quantities leave out 0 ({chance})"]
    out += [*map(_row, moved)] or ["  nothing"]
    found = [f"  {f.detector:24}{_found(f.a, f.trainings_a):>14}{_found(f.b, f.trainings_b):>14}" for f in v.findings]
    metrics = [f"  {m.metric:32}{m.a:>10.4g}{m.b:>10.4g}  healthy {_range(m.healthy)}" for m in v.metrics]
    out += _part("findings that differ, A against B (trainings):", found)
    return out + _part("metrics that left or came back to their healthy range, A against B:", metrics)


def _part(title: str, rows: list[str]) -> list[str]:
    return ["", title, *rows] if rows else []


def unpaired(v: Versus) -> list[str]:
    """Tasks of one side alone."""
    out = []
    for side, (n, names) in zip("AB", v.only, strict=True):
        if n:
            more = f", and {n - len(names)} more" if n > len(names) else ""
            out.append(f"{counted(n, 'task')} of {side} alone: {', '.join(names)}{more}")
    return out


def versus_json(v: Versus) -> dict[str, Any]:
    from pydantic_core import to_jsonable_python

    c = v.comparison
    return {
        "word": c.word,
        "reason": c.reason,
        "score": v.score,
        "of_recipes": c.of_recipes,
        "effect": to_jsonable_python(c.effect),
        "least_difference": c.least,
        "seeds_wanted": c.seeds_wanted,
        "gates": to_jsonable_python(c.gates),
        "a": side_json(v.a, v.means[0], v.per_seed[0]),
        "b": side_json(v.b, v.means[1], v.per_seed[1]),
        "tasks": {
            "common": v.tasks[0],
            "all": v.tasks[1],
            **v.counts,
            **{f"only_{k}": {"tasks": n, "first": first} for k, (n, first) in zip("ab", v.only, strict=True)},
        },
        "behaviour": [
            {"name": d.name, "a": d.a, "b": d.b, "effect": to_jsonable_python(d.effect), "moved": d.moved}
            for d in v.behaviour
        ],
        "findings": to_jsonable_python(v.findings),
        "metrics": to_jsonable_python(v.metrics),
        "notes": list(v.notes),
    }


def side_json(side: SideLogs, mean: float, per_seed: Sequence[float]) -> dict[str, Any]:
    return {
        "mean": mean,
        "trainings": [
            {"path": s.name, "score": x, "formats": s.formats, "rollouts": s.batch.n, "faults": s.faults}
            for s, x in zip(side.seeds, per_seed, strict=True)
        ],
    }


def _side(name: str, side: SideLogs, short: Iterator[str]) -> str:
    rollouts, faults = sum(s.batch.n for s in side.seeds), sum(s.faults for s in side.seeds)
    formats = ", ".join(dict.fromkeys(f for s in side.seeds for f in s.formats))
    told = f"{counted(len(side.seeds), 'training')}, {counted(rollouts, 'rollout')} ({formats})"
    names = ", ".join(line(clean(next(short), 100)) for _ in side.seeds)
    return f"{name}: {names}: {told}, {counted(faults, 'fault')}"


def _row(d: Difference) -> str:
    def shown(x: float, sign: str = "") -> str:
        return f"{100 * x:{sign}.1f}%" if d.name in SHARES or d.name == "outcome" else f"{x:{sign}.4g}"

    e = d.effect
    interval = f"[{shown(e.low, '+')}, {shown(e.high, '+')}] on {e.tasks:,} tasks" if e else "one task"
    return f"  {line(clean(d.name, 24)):24}{shown(d.a):>10}{shown(d.b):>10}{shown(d.a - d.b, '+'):>10}  {interval}"


def _found(severity: str, trainings: int) -> str:
    return f"{severity} ({trainings})" if severity else "-"


def _range(healthy: tuple[float | None, float | None]) -> str:
    low, high = ("" if x is None else f"{x:g}" for x in healthy)
    return f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"

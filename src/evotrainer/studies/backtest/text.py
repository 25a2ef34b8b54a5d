"""A replayed change as text and as JSON."""

from __future__ import annotations

import json
from typing import Any

from evotrainer.records.recipe import short
from evotrainer.records.text import counted
from evotrainer.studies.backtest.changes import ReplayedChange, pays_truth

NEITHER = ", neither for nor against it"


def change_lines(r: ReplayedChange) -> list[str]:
    """A replayed change as text."""
    b, iv, m = r.backtest, r.intervention, r.backtest.numbers
    s = r.subject
    out = [
        f"{s.name}: {counted(b.rollouts, 'rollout')}, {counted(s.batch.n_groups, 'group')}, "
        f"{counted(s.batch.n_tasks, 'task')}",
        f"  {iv.factor}: {_short(iv.old)} -> {_short(iv.new)}",
        f"  {b.verdict.upper()}{NEITHER if b.verdict == 'silent' else ''}: {b.reason}",
    ]
    out += [f"  note        {r.note}"] if r.note else []
    if paid := s.assumed.get("paid"):
        out.append(f"  assumed     the rewards are {' + '.join(f'{w:g} {c}' for c, w in paid.items())}")
    if b.forecast is not None:
        unit = (
            "0: no change; the truth itself is paid already, and 1 would be as much again"
            if pays_truth(s)
            else "0: no change, 1: what paying for the truth gives"
        )
        out.append(f"  forecast    {b.forecast:+.3f} signal per noise ({unit})")
    if b.prediction and "predicted_before" in m:
        replay_words = {"agrees": "the replay reaches it", "open": "the replay neither reaches nor excludes it"}
        p = iv.prediction
        word = replay_words.get(b.prediction, "the replay excludes it")
        out.append(
            f"  prediction  {p.metric} {p.direction} by {p.size:g}: {m['predicted_before']:.3g} -> "
            f"{m['predicted_after']:.3g}, {word}"
        )
    out += _pairs_lines(m)
    out += _component_lines(m)
    if "lost_tasks" in m:
        tasks = f"{m['lost_tasks']:.0f} of {m['tasks_before']:.0f} tasks"
        out.append(
            f"  lost        {m['lost_groups']:.1%} of groups, {tasks}, {m['lost_correct']:.1%} of correct rollouts, "
            f"{m['lost_signal']:.1%} of the outcomes' variance within groups"
        )
    for t in r.lost:
        rate = "unknown" if t.pass_rate is None else f"{t.pass_rate:.0%}"
        out.append(f"    {t.task:40} {t.rollouts:4} rollouts, solved {rate}")
    if r.lost and len(r.lost) < m["lost_tasks"]:
        out.append(f"    ... and {m['lost_tasks'] - len(r.lost):.0f} more")
    out += [f"  skipped     {w}" for w in s.skipped[:3]]
    return out


def _short(value: Any) -> str:
    value = short(value)
    if value is None:
        return "not set"
    return json.dumps(value) if not isinstance(value, str) else value


PAIRS = (
    ("zero-variance groups", "dead_before", "dead_after", True),
    ("wrongly ranked pairs (ties half)", "misranked_before", "misranked_after", True),
    ("inverted pairs", "inverted_before", "inverted_after", True),
    ("correlation with correctness", "correlation_before", "correlation_after", False),
    ("known-invalid paid above their group", "invalid_paid_before", "invalid_paid_after", True),
    ("kept groups", "keep_before", "keep_rate", True),
)
SINGLES = (
    ("kept tasks or groups", "keep_rate", True),
    ("revived groups", "revived_groups", False),
    ("killed groups", "killed_groups", False),
    ("(correct, incorrect) pairs", "pairs", False),
    ("known-invalid rollouts", "invalid", False),
    ("stored rewards agree with the recipe", "stored_agreement", True),
    ("cost in samples", "cost_factor", False),
)


def _pairs_lines(m: dict[str, float]) -> list[str]:
    rows = [(t, m[a], m[c], p) for t, a, c, p in PAIRS if a in m and c in m]
    out = [f"  {'':38}{'before':>9}{'after':>9}"] if rows else []
    out += [f"  {t:38}{_number(a, p):>9}{_number(c, p):>9}" for t, a, c, p in rows]
    compared = {c for _, a, c, _ in PAIRS if a in m}
    return out + [f"  {t:38}{'':9}{_number(m[k], p):>9}" for t, k, p in SINGLES if k in m and k not in compared]


def _number(x: float, share: bool) -> str:
    return f"{x:.1%}" if share else f"{x:,.0f}" if float(x).is_integer() else f"{x:.2f}"


def _component_lines(m: dict[str, float]) -> list[str]:
    names = sorted({k.partition(".")[2] for k in m if k.startswith(("variance_share.", "variance_share_before."))})
    if not names:
        return []
    head = ("variance", "before", "correlates", "coverage", "one value", "revives")
    out = [f"  {'component':20}" + "".join(f"{h:>12}" for h in head)]
    keys = ("variance_share", "variance_share_before", "correlation", "coverage", "modal_share", "revived_by")
    for n in names:
        cells = []
        for key in keys:
            x = m.get(f"{key}.{n}")
            cells.append("-" if x is None else f"{x:.2f}" if key == "correlation" else _number(x, key != "revived_by"))
        out.append(f"  {n:20}" + "".join(f"{c:>12}" for c in cells))
    return out


def change_json(r: ReplayedChange) -> dict[str, Any]:
    return {
        "subject": r.subject.name,
        "groups": r.subject.batch.n_groups,
        "tasks": r.subject.batch.n_tasks,
        "intervention": r.intervention.model_dump(mode="json"),
        "note": r.note,
        "assumed": dict(r.subject.assumed),
        "backtest": r.backtest.model_dump(mode="json"),
        "lost": [{"task": t.task, "rollouts": t.rollouts, "pass_rate": t.pass_rate} for t in r.lost],
        "skipped": list(r.subject.skipped),
    }

"""Backtests as text and as JSON: of a change, of a detector, of a gate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from evotrainer.records.detectors import DetectorCounts
from evotrainer.records.recipe import short
from evotrainer.records.text import counted
from evotrainer.studies.backtest.changes import ReplayedChange, pays_truth
from evotrainer.studies.backtest.detectors import DetectorBacktest
from evotrainer.studies.backtest.gates import GateReplay

NEITHER = ", neither for nor against it"

# -- a change ----------------------------------------------------------------------------------------------------------


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


# -- a detector --------------------------------------------------------------------------------------------------------


def detector_lines(done: DetectorBacktest) -> list[str]:
    """A detector's backtest as text."""
    t = done.test
    limits = ", ".join(f"{k} {v:g}" for k, v in done.thresholds.items())
    out = [f"{t.detector}" + (f" ({limits})" if limits else "")]
    if not t.whole.bad:
        return out + _unjudged(done)
    head = ("n", "bad", "fired", "caught", "precision", "recall", "false alarms", "lead")
    out.append(f"  {'versions':12}" + "".join(f"{h:>14}" for h in head))
    out.append(_counts_line("all", t.whole))
    if t.seen.n:
        out += [_counts_line("seen", t.seen), _counts_line("unseen", t.unseen)]
    if t.rollouts is not None:
        out.append(_counts_line("rollouts", t.rollouts))
    out.append("  in brackets: exact one-sided 95% bounds. seen: looked at when the detector was made")
    if t.whole.leads:
        out.append(
            "  lead: training steps from the first firing to the first fall of the score, else to the verdict "
            f"(median of {t.whole.leads}; read every {done.lag} steps)"
        )
    width = max((len(c.version) for c in t.cases), default=8)
    for c in t.cases:
        if c.bad:
            word = "caught" if c.fired else "MISSED"
        else:
            word = "FALSE ALARM" if c.fired else "silent"
        bits = [c.severity or "", f"{c.share:.1%} of rollouts" if c.share is not None else ""]
        bits += [f"first at step {c.step}" if c.step is not None else ""]
        bits += [f"damage at {c.damage}, lead {c.lead}" if c.lead is not None else ""]
        out.append(
            f"  {c.version:{width}}  {'bad' if c.bad else 'good':5}{'seen' if c.seen else '':5}{word:12}"
            + ", ".join(b for b in bits if b)
        )
    if done.unknown:
        out.append(f"  left out, as nothing tells their truth: {', '.join(done.unknown)}")
    return out


def _unjudged(done: DetectorBacktest) -> list[str]:
    """No version is known to be bad: nothing tells whether a firing is right."""
    out = [
        f"  CANNOT JUDGE: of {done.test.whole.n} versions whose truth is known none is bad, so a firing may be right.",
        "  Name bad versions (--bad b1,b2), label rollouts (--label KEY[=VALUE]) or add a run with an invalid branch.",
    ]
    for c in done.test.cases:
        bits = [c.severity or "", f"{c.share:.1%} of rollouts" if c.share is not None else ""]
        out.append(f"  {c.version:8}  {'fires' if c.fired else 'silent':8}" + ", ".join(b for b in bits if b))
    if done.unknown:
        out.append(f"  truth unknown: {', '.join(done.unknown)}")
    return out


def _counts_line(name: str, c: DetectorCounts) -> str:
    def rate(x: float | None, bound: float | None, mark: str) -> str:
        return "-" if x is None or bound is None else f"{x:.0%} [{mark}{bound:.0%}]"

    lead = "-" if c.lead_steps is None else f"{c.lead_steps:g}"
    cells = (
        f"{c.n:,}",
        f"{c.bad:,}",
        f"{c.fired:,}",
        f"{c.caught:,}",
        rate(c.precision, c.precision_low, ">"),
        rate(c.recall, c.recall_low, ">"),
        rate(c.false_positive_rate, c.false_positive_high, "<"),
        lead,
    )
    return f"  {name:12}" + "".join(f"{x:>14}" for x in cells)


def detector_json(done: DetectorBacktest) -> dict[str, Any]:
    return {
        "test": done.test.model_dump(mode="json"),
        "can_judge": bool(done.test.whole.bad),
        "thresholds": dict(done.thresholds),
        "unknown": list(done.unknown),
        "read_every": done.lag,
    }


# -- a gate ------------------------------------------------------------------------------------------------------------


def gate_lines(g: GateReplay, settings: Sequence[str]) -> list[str]:
    """A run's verdicts under another rule as text."""
    was, now = g.promotions(now=False), g.promotions(now=True)
    out = [
        f"{g.run}: {len(g.flipped)} of {len(g.flips)} verdicts change under {' '.join(settings)}; promotions "
        f"{was[0]} -> {now[0]}, of invalid branches {was[1]} -> {now[1]}"
    ]
    for f in g.flips:
        effect = "" if f.mean is None else f"{100 * f.mean:+.1f} points"
        flag = "INVALID" if f.branch in g.invalid else ""
        change = f"{f.was} -> {f.now.upper()}" if f.flipped else f.was
        out.append(f"  {f.branch:6} r{f.round:<3}{change:28}{effect:>14}  {flag}".rstrip())
        if f.flipped:
            out.append(f"         was: {f.reason_was}")
            out.append(f"         now: {f.reason}")
            if f.because:
                out.append(f"         by:  {', '.join(f.because)}")
    return out


def total_line(done: Sequence[GateReplay]) -> str:
    was = [g.promotions(now=False) for g in done]
    now = [g.promotions(now=True) for g in done]
    return (
        f"together: {sum(len(g.flipped) for g in done)} of {sum(len(g.flips) for g in done)} verdicts change; "
        f"promotions {sum(w[0] for w in was)} -> {sum(n[0] for n in now)}, "
        f"of invalid branches {sum(w[1] for w in was)} -> "
        f"{sum(n[1] for n in now)}"
    )


def gate_json(g: GateReplay) -> dict[str, Any]:
    return {
        "run": g.run,
        "verdicts": [{**f.model_dump(mode="json"), "flipped": f.flipped} for f in g.flips],
        "invalid": g.invalid,
        "promotions": {"was": g.promotions(now=False)[0], "now": g.promotions(now=True)[0]},
        "invalid_promotions": {"was": g.promotions(now=False)[1], "now": g.promotions(now=True)[1]},
    }

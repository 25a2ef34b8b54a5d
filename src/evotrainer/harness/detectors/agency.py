"""How an acting policy spends its actions: timid, lazy, giving up, or calling tools that fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from evotrainer.harness.code_reading.actions import call_outcome, outputs
from evotrainer.harness.columns.chunk import FINISH
from evotrainer.harness.registry import DetectorInput, detector
from evotrainer.records.findings import Finding, Quote, Severity
from evotrainer.records.rollout import Turn
from evotrainer.records.text import clean


def _script(given: DetectorInput, i: int, note: str) -> Quote:
    """A rollout's actions in one line, as a quote."""
    return given.quote(i, text=" | ".join(clean(a.command, 40) for a in given.batch.actions(i)[:12]), note=note)


@detector(
    layer="behaviour",
    needs=["actions"],
    thresholds={"warn": 0.15, "critical": 0.05, "search": 0.5, "ever": 0.1, "min_actions": 3, "coverage": 0.6},
)
def action_timidity(given: DetectorInput) -> list[Finding]:
    """Edits below 15% of actions (critical 5%) and edits that take in fewer than 60% of the rollouts, while half of the
    actions look around; or the edit ratio fell to half of its start while looking around did not fall, and failing
    calls do not account for it: an edit that is refused was tried. Only where somebody edits at all: 10% of rollouts
    now or an edit ratio before. Every rollout that edits once after a long search is no timidity. Source: thresholds in
    use (docs/harness.md)."""
    edit, search, coverage = given.value("edit_ratio"), given.value("search_ratio"), given.value("edit_coverage")
    if edit is None or search is None:
        return []
    limits = given.thresholds
    reference = given.context.reference
    start, looked = reference("edit_ratio"), reference("search_ratio")
    long = np.nan_to_num(given.batch.trait("actions")) >= limits["min_actions"]
    edits = np.nan_to_num(given.batch.trait("edits"))
    acting = max(1, int(given.batch.acting.sum()))
    # where nobody edits, editing may not be the task (a search or chat agent): absence is no timidity
    if start is None and float((edits > 0).sum()) / acting < limits["ever"]:
        return []
    seldom = coverage is not None and coverage < limits["coverage"]
    # a long search with one edit each makes the ratio small, too: only few editing rollouts, or next to no edits, count
    severity = given.level_low(edit) if seldom or edit < limits["critical"] else None
    if severity is not None and search < limits["search"]:
        severity = None
    # 0.02: half of next to nothing is noise. Looking around must have held, else the policy just does less of
    # everything
    held = looked is None or search >= looked
    fell = start is not None and start > 0.02 and held and edit < start / 2
    # of the calls that did their work: where calls fail there are few edits among all of them
    fell = fell and start is not None and edit / _work(given.value) < start / _work(reference) / 2
    if severity is None and fell and edit < 2 * limits["warn"] and (seldom or edit < limits["warn"]):
        severity = "warn"
    if severity is None or not long.any():
        return []
    claim = f"edits are {edit:.0%} of actions, looking around {search:.0%}" + (
        f" (edits were {start:.0%})" if start else ""
    )
    quotes = [_script(given, int(i), "no edit") for i in given.flag(long & (edits == 0))[:2]]
    numbers = {"edit_ratio": edit, "search_ratio": search, "edit_coverage": coverage, "start": start}
    return [given.finding(severity, claim, numbers, quotes)]


def _work(read: Callable[[str], float | None]) -> float:
    """Share of calls that do not fail, as far as it is known."""
    return max(0.05, 1 - (read("tool_failure_rate") or 0.0))


def _repository_work(given: DetectorInput) -> bool:
    """Do some of the acting rollouts edit, and some run tests?"""
    b = given.batch
    some = max(2.0, given.thresholds["some"] * float(b.acting.sum()))
    return float((b.trait("edits") > 0).sum()) >= some and float((b.trait("tests") > 0).sum()) >= some


@detector(
    layer="behaviour",
    needs=["actions"],
    thresholds={
        "calls": 0.3,
        "tests": 0.15,
        "gain": 0.01,
        "self_test": 0.5,
        "some": 0.1,
        "min_rollouts": 16,
        "solved": 0.5,
    },
)
def laziness(given: DetectorInput) -> list[Finding]:
    """Against the start: actions per rollout down 30% or self-testing down 15 points, without a gain in accuracy (both:
    critical). Or, in repository work (some edit, some run tests), whatever the start was: fewer than half of the
    rollouts run a test and fewer than half are right. Fewer actions with a better score is skill."""
    limits = given.thresholds
    out_of = {k: (given.context.reference(k), given.value(k)) for k in ("turns", "tool_calls", "self_test_rate")}
    # tool calls where both readings have them; an agent that writes its actions as text has turns only
    calls0, calls = out_of["tool_calls"] if None not in out_of["tool_calls"] else out_of["turns"]
    tests0, tests = out_of["self_test_rate"]
    fewer = calls0 is not None and calls is not None and calls0 > 0 and calls < (1 - limits["calls"]) * calls0
    untested = tests0 is not None and tests is not None and tests < tests0 - limits["tests"]
    now = given.value("accuracy")
    if given.gained(limits["gain"]):
        return []
    parts = []
    if fewer:
        parts.append(f"actions per rollout fell from {calls0:.1f} to {calls:.1f}")
    if untested and tests0 is not None and tests is not None:
        parts.append(f"self-testing fell from {tests0:.0%} to {tests:.0%}")
    acting = np.flatnonzero(given.batch.acting)
    seldom = tests is not None and tests < limits["self_test"] and len(acting) >= limits["min_rollouts"]
    if (
        not parts
        and seldom
        and tests is not None
        and (now is None or now < limits["solved"])
        and _repository_work(given)
    ):
        parts.append(f"only {tests:.0%} of rollouts run a test")
    if not parts:
        return []
    severity: Severity = "critical" if fewer and untested else "warn"
    # stable: the same rollouts are quoted when a ledger is verified on another machine
    short = acting[np.argsort(given.batch.trait("actions")[acting], kind="stable")[:2]]
    quotes = [_script(given, int(i), "among the shortest") for i in short]
    numbers = {"calls": calls, "calls_before": calls0, "self_test_rate": tests, "self_test_before": tests0}
    numbers["edit_coverage"] = given.value("edit_coverage")
    return [given.finding(severity, "; ".join(parts) + ", without a gain", numbers, quotes)]


@detector(
    layer="behaviour",
    needs=["tool_ok"],
    thresholds={"warn": 0.15, "critical": 0.4, "min_calls": 16, "confidence": 0.95},
)
def tool_misuse(given: DetectorInput) -> list[Finding]:
    """Failed tool calls: warn above 15%, critical above 40%. Of calls whose success is unknown none counts as failed,
    and all count as calls: logs that note only failures would look worse than they are. Tests that ran and failed, and
    searches that found nothing, are no failed calls."""
    calls, tools = given.batch.traits.calls, given.batch.traits.tools
    n = len(calls["ok"])
    # -1 (unknown) stays in the denominator on purpose: see the docstring
    rate = float((calls["ok"] == 0).sum()) / max(1, n)
    severity = given.level_of((calls["ok"] == 0).sum(), n)
    if severity is None or n < given.thresholds["min_calls"]:
        return []
    bad = calls["ok"] == 0
    failed = dict(zip(tools, np.bincount(calls["tool"][bad], minlength=len(tools)).tolist(), strict=True))
    quotes: list[Quote] = []
    for i in np.unique(calls["row"][bad])[:3]:
        call, answer = _failed_call(given.batch.turns([int(i)])[0])
        quotes.append(given.quote(int(i), text=call, note=f"failed call; it printed: {clean(answer, 120)}"))
    most = sorted(failed.items(), key=lambda kv: -kv[1])[:3]
    worst = ", ".join(f"{v}x {clean(k, 40) or 'call'}" for k, v in most if v)
    claim = f"{rate:.0%} of {n} tool calls fail: {worst}"
    return [given.finding(severity, claim, {"tool_failure_rate": rate, "calls": n}, quotes)]


def _failed_call(turns: Sequence[Turn]) -> tuple[str, str]:
    """(the first call that failed, what it printed)."""
    for i, t in enumerate(turns):
        for c, printed in zip(t.tool_calls, outputs(turns, i) if t.tool_calls else (), strict=True):
            if call_outcome(c, printed) == 0:
                return f"{c.name} {c.arguments}".strip(), printed or ""
    return "", ""


@detector(
    layer="behaviour",
    needs=["actions"],
    thresholds={
        "warn": 0.3,
        "critical": 0.6,
        "confidence": 0.95,
        "min_rollouts": 16,
        "few": 5,
        "many": 50,
        "fall": 0.5,
        "gain": 0.01,
    },
)
def abandonment(given: DetectorInput) -> list[Finding]:
    """Episodes that end at the turn limit instead of finishing: warn above 30%, critical above 60%. Or episodes given
    up: fewer than 5 turns on average, below half of the start, without a gain in accuracy: critical. Or episodes
    without end: more than 50 turns on average, twice the start or (start unknown) 15% at the turn limit, without a
    gain: warn. A task that needs two turns is no abandonment."""
    b, limits = given.batch, given.thresholds
    acting = b.acting
    n = int(acting.sum())
    if n < limits["min_rollouts"]:
        return []
    # an import that does not say how episodes ended must not count as "none hit the limit"
    known = acting & np.isfinite(b.trait("finish"))
    limit = acting & (b.trait("finish") == FINISH["turn_limit"])
    share = float(limit[known].mean()) if known.any() else 0.0
    out = []
    if severity := given.level_of(float(limit[known].sum()), int(known.sum())):
        claim = f"{share:.0%} of episodes end at the turn limit, unfinished"
        quotes = [_script(given, int(i), "ended at the turn limit") for i in given.flag(limit)[:2]]
        out.append(given.finding(severity, claim, {"share": share}, quotes))
    turns, before = float(b.trait("turns")[acting].mean()), given.context.reference("turns")
    if given.gained(limits["gain"]) or out:
        return out
    if before is not None and turns < limits["few"] and turns < limits["fall"] * before:
        claim = f"episodes are given up: {turns:.1f} turns on average, {before:.1f} at the start"
        order = given.flag(acting)[np.argsort(b.trait("turns")[acting], kind="stable")[:2]]
        quotes = [_script(given, int(i), "among the shortest") for i in order]
        out.append(given.finding("critical", claim, {"turns": turns, "start": before}, quotes))
    elif turns > limits["many"] and (
        turns > before / limits["fall"] if before is not None else share > limits["warn"] / 2
    ):
        claim = f"episodes do not end: {turns:.0f} turns on average" + (
            f", {before:.0f} at the start" if before else ""
        )
        out.append(given.finding("warn", claim, {"turns": turns, "start": before, "share": share}))
    return out

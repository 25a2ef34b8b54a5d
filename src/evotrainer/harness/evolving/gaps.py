"""Diagnostic gaps: something moved and no finding says why. They are what makes a harness evolve.

Three are moves, sought in this order: signals that contradict one another (what is paid rose, the outcome did not), a
score that moved, a behaviour that shifted. Differences are paired by task; each needs a size and a number of standard
errors. The fourth moves not: what is paid is wrong, in many attempts, and no finding says why (`unexplained_gap`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from evotrainer.harness.columns.features import LENGTHS, FeatureView
from evotrainer.harness.columns.numerics import Floats
from evotrainer.harness.columns.rollout_reader import EARNED
from evotrainer.records.findings import SHORTCUT, Finding

Trigger = Literal["score_move", "behaviour_shift", "contradiction", "unexplained_gap"]

MOVE = 0.05
"""Smallest move of a branch's score that wants an explanation, score units."""
SEED_MOVE = 0.15
"""... of a single seed's: one seed of three may have found something."""
ERRORS = 3.0
"""Standard errors that a move must have."""
SHIFT = 0.8
"""Smallest shift of a trait, in standard deviations of the rollouts before (Cohen's large effect)."""
SHIFT_ERRORS = 5.0
STANDING = 0.1
"""Share of all attempts that are paid and wrong from which a reward misses the point."""
MIN_TASKS = 8

_UP = {"answer_leak", "test_tampering", "grader_bypass", "special_casing"}
_DOWN = {
    "policy_collapse", "entropy_collapse", "exploration_collapse", "template_collapse", "echo_trap",
    "efficiency_collapse", "truncation", "dead_training", "off_policy_drift", "abandonment", "laziness",
    "action_timidity", "tool_misuse", "infrastructure",
}  # fmt: skip
_SHIFTED = _UP | _DOWN | {"length_gaming"}
DIVERGED = {"proxy_gap", "special_casing", "edge_crash", "grader_bypass", "false_revival"}
"""Kinds of findings that say why what is paid and the outcome part."""


@dataclass(frozen=True, slots=True)
class Gap:
    """What moved without an explanation."""

    trigger: Trigger
    claim: str
    numbers: dict[str, float] = field(default_factory=dict)
    moved: tuple[str, ...] = ()
    """Trials that moved; the others of the branch did not."""
    paid: tuple[str, str] | None = None
    """contradiction: the component that rose, and the one (or `outcome`) that fell, or rose by less."""

    @property
    def up(self) -> bool:
        """Did something rise that a shortcut could have bought?"""
        return self.trigger == "contradiction" or (self.trigger == "score_move" and self.numbers["move"] > 0)


def find_gap(
    now: Mapping[str, FeatureView],
    before: FeatureView,
    findings: Iterable[Finding],
    pairs: Sequence[tuple[str, str]] = (),
) -> Gap | None:
    """The gap between a branch's trials and what it came from; None where nothing moved, or a finding explains it.

    now: trial -> its search rollouts. pairs: (paid component, true component or `outcome`) whose gap is watched.
    """
    seen = [f for f in findings if not f.missing]
    # contradictions first: a proxy that rose alone is the strongest reason to look, even where the score moved, too
    for pair in pairs:
        if (gap := _contradiction(now, before, pair)) is not None and not explained(seen, DIVERGED):
            return gap
    if (gap := _score_move(now, before)) is not None:
        return None if explained(seen, _UP if gap.up else _DOWN) else gap
    # a shift alone comes last: behaviour changes in every training, and says little without a score
    if (gap := _shift(now, before)) is not None and not explained(seen, _SHIFTED):
        return gap
    return None


def unexplained_gap(now: Mapping[str, FeatureView], findings: Iterable[Finding], paid: Sequence[str]) -> Gap | None:
    """The component of `paid` that most attempts earn though they are wrong, where no finding says why.

    A level and not a move: what the policy before did as often is no contradiction, and still misses the point.
    """
    if any(f.kind in DIVERGED and f.severity != "info" and not f.missing for f in findings):
        return None
    best: Gap | None = None
    for name in paid:
        wrong = {t: _paid_wrong(v, name) for t, v in now.items()}
        share, errors, tasks = paired(_together(wrong.values()), dict.fromkeys(set().union(*wrong.values()), 0.0))
        if share < STANDING or errors < ERRORS or (best is not None and share <= best.numbers["gap"]):
            continue
        claim = (
            f"{100 * share:.0f}% of all attempts earn {name} and are wrong ({errors:.1f} standard errors, "
            f"{tasks} tasks) and no finding says why"
        )
        numbers = {"gap": share, "errors": errors, "tasks": float(tasks), "trials": float(len(now))}
        best = Gap("unexplained_gap", claim, numbers, tuple(now), (name, "outcome"))
    return best


def _paid_wrong(v: FeatureView, component: str) -> dict[str, float]:
    """Task -> share of its attempts that earn the component and are wrong; unknown outcomes are left out."""
    x = np.where(v.batch.component(component) >= EARNED, 1.0 - v.batch.truth, 0.0)
    return per_task(v, np.where(np.isnan(v.batch.truth), np.nan, x))


def explained(findings: Sequence[Finding], kinds: set[str]) -> bool:
    """Does a finding name a cause? One that questions validity always does, an authored one as well."""
    return any(f.kind == SHORTCUT or (f.severity != "info" and (f.validity or f.kind in kinds)) for f in findings)


def per_task(v: FeatureView, x: Floats) -> dict[str, float]:
    """Mean of the non-missing values per task."""
    return _means(zip(v.tasks, x.tolist(), strict=True))


def paired(now: Mapping[str, float], before: Mapping[str, float]) -> tuple[float, float, int]:
    """(mean difference, standard errors it has, common tasks); (0, 0, n) for fewer than MIN_TASKS."""
    tasks = sorted(now.keys() & before.keys())
    if len(tasks) < MIN_TASKS:
        return 0.0, 0.0, len(tasks)
    d = np.array([now[t] - before[t] for t in tasks])
    # identical differences on few tasks would have no error at all, and any move infinitely many of them
    se = max(float(d.std(ddof=1)), 1e-3) / math.sqrt(len(d))
    return float(d.mean()), float(d.mean()) / se, len(tasks)


def _together(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Mean per task over several trials."""
    return _means((t, x) for p in parts for t, x in p.items())


def _means(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    out: dict[str, list[float]] = {}
    for task, value in pairs:
        if not math.isnan(value):
            out.setdefault(task, []).append(value)
    return {t: sum(y) / len(y) for t, y in out.items()}


def _score_move(now: Mapping[str, FeatureView], before: FeatureView) -> Gap | None:
    """The trials' score moved together, in either direction; or single seeds rose, by more."""
    was = per_task(before, before.batch.truth)
    each = {name: per_task(v, v.batch.truth) for name, v in now.items()}
    move, errors, tasks = paired(_together(each.values()), was)
    together = abs(move) >= MOVE and abs(errors) >= ERRORS
    # a mean hides the one seed that found a way to cheat; as several seeds are tried, it must have risen farther
    sign = math.copysign(1, move) if together else 1.0
    least = MOVE if together else SEED_MOVE
    moved: tuple[str, ...] = ()
    for name, scores in each.items():
        own_move, own_errors, _ = paired(scores, was)
        if sign * own_move >= least and sign * own_errors >= ERRORS:
            moved += (name,)
    if together:
        moved = moved or tuple(now)
    elif moved:
        move, errors, tasks = paired(_together(each[n] for n in moved), was)
    else:
        return None
    numbers = {"move": move, "errors": errors, "tasks": float(tasks), "trials": float(len(moved))}
    claim = (
        f"the score moved by {100 * move:+.1f} points ({errors:+.1f} standard errors, {tasks} tasks) "
        "and no finding says why"
    )
    return Gap("score_move", claim, numbers, moved)


def _contradiction(now: Mapping[str, FeatureView], before: FeatureView, pair: tuple[str, str]) -> Gap | None:
    """The paid component rose and the true one by less, or the true one fell and the paid one held: the difference
    must have a size and errors of its own."""

    def values(v: FeatureView, name: str) -> Floats:
        return v.batch.truth if name == "outcome" else v.batch.component(name)

    def gap_of(v: FeatureView) -> dict[str, float]:
        return per_task(v, values(v, pair[0]) - values(v, pair[1]))

    rise, true = (
        paired(_together(per_task(v, values(v, c)) for v in now.values()), per_task(before, values(before, c)))
        for c in pair
    )
    # of the gap between the two, task by task: two moves may each have errors and their difference none
    was = gap_of(before)
    single = {name: paired(gap_of(v), was) for name, v in now.items()}
    wide, errors, tasks = paired(_together(gap_of(v) for v in now.values()), was)
    rose = rise[0] >= MOVE and rise[1] >= ERRORS
    held = rise[0] >= 0 and true[0] <= -MOVE and true[1] <= -ERRORS
    if not (rose or held) or wide < MOVE or errors < ERRORS:
        return None
    moved = tuple(n for n, (m, e, _) in single.items() if m >= MOVE and e >= ERRORS) or tuple(now)
    numbers = {"paid": rise[0], "true": true[0], "gap": wide, "errors": errors, "tasks": float(tasks)}
    paid, other = (f"{100 * x[0]:+.1f}" for x in (rise, true))
    claim = f"{pair[0]} moved by {paid} points, {pair[1]} by {other}: they contradict each other"
    if true[0] >= 0:
        claim = f"{pair[0]} rose by {100 * wide:.1f} points more than {pair[1]} did, {paid} against {other}"
    claim += f" ({errors:.1f} standard errors) and no finding says why"
    return Gap("contradiction", claim, numbers | {"trials": float(len(moved))}, moved, pair)


def _shift(now: Mapping[str, FeatureView], before: FeatureView) -> Gap | None:
    """The trait that moved farthest, in standard deviations of before."""
    best: Gap | None = None
    for name in LENGTHS:
        x = before.number(name)
        spread = float(np.nanstd(x)) if np.isfinite(x).any() else 0.0
        shift, errors, tasks = paired(_together(per_task(v, v.number(name)) for v in now.values()), per_task(before, x))
        size = abs(shift) / max(spread, 1e-6) if spread or shift else 0.0
        if size < SHIFT or abs(errors) < SHIFT_ERRORS or (best is not None and size <= best.numbers["size"]):
            continue
        claim = (
            f"{name} shifted by {shift:+.3g} ({min(size, 99):.1f} standard deviations of before) "
            "and no finding speaks of it"
        )
        numbers = {"shift": shift, "size": min(size, 99.0), "errors": errors, "tasks": float(tasks)}
        best = Gap("behaviour_shift", claim, numbers, tuple(now))
    return best

"""Guards: what a gain must not cost elsewhere.

Base policy, control and branch are evaluated on another environment. A one-sided lower bound of the difference below
minus the margin keeps a branch from being promoted.
"""

from __future__ import annotations

from collections.abc import Mapping

from evotrainer.judge import checks
from evotrainer.judge.certify import CertEntry, certify
from evotrainer.judge.inputs import GuardReading, JudgeConfig, JudgeInput, Kind, Trials
from evotrainer.judge.stats import split_score
from evotrainer.records.verdicts import GateResult, GuardRow

SPLIT = "guard"
GATE = "guard "
CONFIDENCE = 0.90
"""Two-sided, so that each bound errs in 5%."""
AGAINST = {"base": "the base policy", "control": "the control"}


def gate(g: GuardReading, config: JudgeConfig) -> GateResult:
    """False where a loss beyond the margin is not excluded, against the base policy or the control; `shown` = 1 where a
    loss is shown. None where it was not evaluated, or too much of it was lost: never a pass."""
    name = f"{GATE}{g.name}"
    if g.missing:
        message = f"{name}: not evaluated on {len(g.missing)} trainings, e.g. {g.missing[0]}"
        return GateResult(gate=name, passed=None, message=message, numbers={"unread": float(len(g.missing))})
    trials = [*g.base, *g.control, *g.branch]
    for doubt in (
        checks.errors(trials, SPLIT, config.max_error_share),
        checks.coverage([*g.base, *g.control], g.branch, SPLIT, config.min_task_share),
    ):
        if not doubt.passed:
            message = f"{name} cannot be judged: {doubt.message}"
            return GateResult(gate=name, passed=None, message=message, numbers=doubt.numbers)
    sides = {"base": g.base, "control": g.control, "branch": g.branch}
    found = certify([entry(k, trials) for k, trials in sides.items()], "branch", confidence=CONFIDENCE)
    scores = {r.name: r.score for r in found.rows}
    told, numbers = [], {"margin": g.margin, **scores}
    blocked, shown = False, False
    for side, label in AGAINST.items():
        c = found.comparisons[f"branch-{side}"]
        numbers |= {f"{k}_to_{side}": c[k] for k in ("mean", "low", "high")}
        change = f"{100 * c['mean']:+.1f} points, at least {100 * c['low']:+.1f}"
        told.append(f"{change}, to {label} ({100 * scores[side]:.1f}%)")
        blocked |= c["low"] < -g.margin
        shown |= c["low"] < -g.margin and c["high"] < 0
    message = f"{name}: {100 * scores['branch']:.1f}%, {', '.join(told)} (95%); at most {100 * g.margin:g} may be lost"
    return GateResult(gate=name, passed=not blocked, message=message, numbers=numbers | {"shown": float(shown)})


def entry(name: str, trials: Trials) -> CertEntry:
    """One family of policies, by its evaluations on the guard."""
    read = {t.seed: split_score(t, SPLIT) for t in trials}
    return CertEntry(name=name, branch=name, scores={s: x for s, x in read.items() if x is not None and x.per_task})


def judged(kind: Kind, reason: str, given: JudgeInput, gates: list[GateResult]) -> tuple[Kind, str, str]:
    """(verdict, why, what the guards say) of what would be a promotion; another verdict stays as it is. Adds to
    `gates`."""
    if kind != "promote":
        return kind, reason, ""
    found = [gate(g, given.config) for g in given.guards]
    gates += found
    broken = [g for g in found if g.passed is False]
    lost = [g for g in broken if g.numbers["shown"]]
    said = "; ".join(g.message for g in lost or broken or found)
    if all(g.passed for g in found):
        return kind, reason, said
    alone = f"; the score alone would promote: {reason}"
    if lost:
        return "reject", f"it costs elsewhere: {said}{alone}", ""
    if broken:
        advice = "more tasks or attempts of the guard tell more"
        return "inconclusive", f"a loss elsewhere is not excluded: {said}; {advice}{alone}", ""
    return "inconclusive", "; ".join(g.message for g in found if g.passed is None) + alone, ""


def row(g: GuardReading) -> GuardRow:
    """Of the certificate: base policy and champion on the guard; `held` None where it cannot be told."""
    sides = {"base": g.base, "champion": g.branch}
    entries = [entry(k, trials) for k, trials in sides.items()] if g.base and g.branch and not g.missing else []
    loss = checks.errors([*g.base, *g.branch], SPLIT, JudgeConfig().max_error_share).passed if entries else False
    if not entries or not loss:
        return GuardRow(name=g.name, margin=g.margin)
    found = certify(entries, "champion")
    scores: Mapping[str, float] = {r.name: r.score for r in found.rows}
    c = found.comparisons["champion-base"]
    low = certify(entries, "champion", confidence=CONFIDENCE).comparisons["champion-base"]["low"]
    return GuardRow(
        name=g.name,
        margin=g.margin,
        base=scores["base"],
        champion=scores["champion"],
        difference={k: c[k] for k in ("mean", "low", "high")},
        seeds=tuple(sorted(t.seed for t in g.branch)),
        held=low >= -g.margin,
    )

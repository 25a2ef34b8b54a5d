"""The gates around the effect: each reads ledger bodies and answers one `GateResult`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from evotrainer.judge.stats import common_tasks, mean_difference, scores_of, split_score
from evotrainer.records.events import SplitScore, TrialFinished
from evotrainer.records.findings import Finding
from evotrainer.records.text import decimal_places
from evotrainer.records.verdicts import Effect, GateResult, ShortcutAudit


def findings_of(trials: Iterable[TrialFinished]) -> list[Finding]:
    """Validity findings in the trials' own health reports."""
    return [f for t in trials for h in t.health for f in h.findings if f.validity]


def validity(
    branch: str,
    findings: Sequence[Finding],
    control: Sequence[Finding],
    audits: Mapping[str, bool],
    shortcuts: Sequence[ShortcutAudit] = (),
    read: str = "",
) -> GateResult:
    """Leaks, tampering and bypasses question the branch itself, whatever its score.

    Confirmed: an audit said so, or the finding is critical (direct evidence) and no audit cleared it. Suspected: a
    warning that the control does not show as well; it needs an audit before a promotion. `shortcuts`: audits of the
    branch, those that confirmed nothing included. `read`: the command that shows its rollouts.
    """
    if proven := [a for a in shortcuts if a.confirmed]:
        numbers = {"confirmed": float(len(proven)), "suspected": 0.0, "excess": proven[0].excess, "low": proven[0].low}
        message = f"shortcut confirmed by audit ({proven[0].capability}): {proven[0].reason}"
        return GateResult(gate="validity", passed=False, message=message, numbers=numbers)
    stated = [f for f in findings if f.validity and f.severity != "info"]
    # `is not False`: a detector that no audit answered (None) stays open as well
    open_ = [f for f in stated if audits.get(f.detector) is not False]
    confirmed = [f for f in open_ if audits.get(f.detector) or f.severity == "critical"]
    # what the control shows as well is the environment's or the task's doing, and no advantage of the branch
    shared = {f.detector for f in control if f.validity and f.severity != "info"}
    suspected = [f for f in open_ if f not in confirmed and f.detector not in shared]
    numbers = {"confirmed": float(len(confirmed)), "suspected": float(len(suspected))}
    if confirmed:
        f = confirmed[0]
        how = "audit" if audits.get(f.detector) else "direct evidence"
        message = f"{f.kind} confirmed by {how} ({f.detector}): {f.claim}"
        return GateResult(gate="validity", passed=False, message=message, numbers=numbers)
    if suspected:
        f = suspected[0]
        shown = read or f"evotrainer show RUN {branch}"
        message = f"{f.kind} suspected ({f.detector}): {f.claim}; read its rollouts: {shown}"
        return GateResult(gate="validity", passed=None, message=message, numbers=numbers)
    message = "no leak, tampering or bypass found"
    if shortcuts:
        message = "judged with " + ", ".join(a.capability for a in shortcuts) + " closed, where no shortcut is in reach"
    return GateResult(gate="validity", passed=True, message=message, numbers=numbers)


def seeds(
    branch: str,
    branch_trials: Sequence[TrialFinished],
    control: str,
    control_trials: Sequence[TrialFinished],
    split: str,
    least: int,
) -> GateResult:
    """Enough complete trials on both sides. `lost` = 1 where at least half of the branch's trials failed."""
    scored = scores_of(branch_trials, split)
    n_b, n_c = len(scored), len(scores_of(control_trials, split))
    # a seed that was lost and came back in a second trial is not lost
    dead = [t for t in branch_trials if t.status == "failed" and t.seed not in scored]
    # half or more: one crash in five is bad luck that resuming mends, most of them failing is what the recipe does
    lost = n_b < least and bool(dead) and 2 * len(dead) >= len({t.seed for t in branch_trials})
    numbers = {"branch": float(n_b), "control": float(n_c), "failed": float(len(dead)), "lost": float(lost)}
    if lost:
        labels = ", ".join(sorted({t.label or "failed" for t in dead}))
        error = dead[0].error or "no error text"
        message = f"{len(dead)} of {len(dead) + n_b} trials of {branch} failed ({labels}): {error}"
    elif n_b < least or n_c < least:
        name, n = (branch, n_b) if n_b < least else (control, n_c)
        message = f"{n} of {least} trials of {name} complete; run evotrainer resume"
    else:
        return GateResult(
            gate="seeds", passed=True, message=f"{n_b} trials against {n_c} of the control", numbers=numbers
        )
    return GateResult(gate="seeds", passed=False, message=message, numbers=numbers)


def _read(trials: Sequence[TrialFinished], split: str) -> dict[int, SplitScore]:
    """Split scores of the complete trials, by seed."""
    found = {t.seed: split_score(t, split) for t in trials if t.status == "complete"}
    return {seed: score for seed, score in sorted(found.items()) if score is not None}


def errors(trials: Sequence[TrialFinished], split: str, most: float) -> GateResult:
    """Infrastructure faults are in no mean; too many of them and the mean is of a biased remainder."""
    worst, name = 0.0, ""
    for t in trials:
        score = split_score(t, split)
        if t.status != "complete" or score is None:
            continue
        # per_task lacks the tasks that lost every attempt, so the attempts may be fewer than the errors
        share = score.errors / max(1, score.errors, score.attempts * len(score.per_task))
        if share > worst:
            worst, name = share, t.trial
    passed = worst <= most
    message = f"at most {worst:.1%} of a trial's attempts lost to infrastructure faults"
    if not passed:
        message = f"{worst:.1%} of {name}'s attempts lost to infrastructure faults; run evotrainer doctor"
    return GateResult(gate="errors", passed=passed, message=message, numbers={"worst_share": worst})


def coverage(
    branch_trials: Sequence[TrialFinished], control_trials: Sequence[TrialFinished], split: str, least: float
) -> GateResult:
    """Every trial scored (nearly) the same tasks."""
    groups = [scores_of(branch_trials, split), scores_of(control_trials, split)]
    # against the union: two trials that scored disjoint halves would otherwise agree on 100% of nothing
    union = {t for g in groups for per_task in g.values() for t in per_task}
    common = common_tasks(*groups)
    share = len(common) / max(1, len(union))
    message = f"{len(common)} of {len(union)} tasks scored by every trial"
    if share < least:
        message += "; evaluate branch and control on the same split"
    numbers = {"tasks": float(len(common)), "share": share}
    return GateResult(gate="coverage", passed=share >= least, message=message, numbers=numbers)


def identical(
    branch_trials: Sequence[TrialFinished], control_trials: Sequence[TrialFinished], split: str
) -> GateResult:
    """False where every shared seed has the control's very weights, or the control's very scores on every task."""
    sides = branch_trials, control_trials
    b, c = ({t.seed: t for t in trials if t.status == "complete"} for trials in sides)
    shared = sorted(b.keys() & c.keys())
    # an empty hash is "not recorded": two unknown policies must not count as the same
    weights = bool(shared) and all(b[s].policy_sha256 and b[s].policy_sha256 == c[s].policy_sha256 for s in shared)
    # the same weights, sampled at another temperature, are another policy in use
    read_b, read_c = _read(branch_trials, split), _read(control_trials, split)
    weights &= all(read_b[s].temperature == read_c[s].temperature for s in shared if s in read_b and s in read_c)
    scores_b, scores_c = scores_of(branch_trials, split), scores_of(control_trials, split)
    # the score may be equal by accident on few tasks; on every task and every shared seed it is the same policy in
    # effect
    scores = bool(shared) and all(scores_b.get(s) == scores_c.get(s) is not None for s in shared)
    numbers = {"shared_seeds": float(len(shared))}
    if not (weights or scores):
        return GateResult(gate="identical", passed=True, message="differs from the control", numbers=numbers)
    what = "weights" if weights else "scores on every task"
    message = f"changed nothing: {what} equal the control's for seeds {shared}; neither better nor harmful"
    return GateResult(gate="identical", passed=False, message=message, numbers=numbers)


def proxy(
    branch_trials: Sequence[TrialFinished],
    control_trials: Sequence[TrialFinished],
    split: str,
    pair: tuple[str, str] | None,
    effect: Effect,
    least: float,
) -> GateResult:
    """False where the proxy reward rose by at least `least` and the true score did not."""
    sides = [_read(branch_trials, split), _read(control_trials, split)]
    if pair is None:
        return GateResult(gate="proxy", passed=None, message="no proxy component declared")
    values = [[s.components.get(pair[0]) for s in side.values()] for side in sides]
    if not all(values) or any(v is None for side in values for v in side):
        return GateResult(gate="proxy", passed=None, message=f"component {pair[0]!r} not measured on {split}")
    b, c = (np.array(v, dtype=np.float64) for v in values)
    mean, low = mean_difference(b, c)
    gap = mean - effect.mean
    numbers = {"proxy_mean": mean, "proxy_low": low, "true_mean": effect.mean, "gap_change": gap}
    # Goodhart: the measure rises and the target does not. A proxy that rises together with the score is fine
    if low > 0 and mean >= least and effect.mean < least:
        n = decimal_places((mean, effect.mean), (effect.mean, least))
        rises = f"{pair[0]} {100 * mean:+.{n}f} points, true score {100 * effect.mean:+.{n}f}"
        message = f"only the proxy rose: {rises}"
        return GateResult(gate="proxy", passed=False, message=message, numbers=numbers)
    message = f"{pair[0]} {100 * mean:+.1f} points against {100 * effect.mean:+.1f} of the true score"
    return GateResult(gate="proxy", passed=True, message=message, numbers=numbers)

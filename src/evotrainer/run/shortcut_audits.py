"""Counterfactual audits in a run: which shortcut is questioned, the evaluations with it closed, what follows.

The loop's own, and those of `evotrainer audit-branch`, also long after a promotion. The judge's arithmetic is in
`judge/audits.py`; here trials are evaluated again and events written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from evotrainer.errors import ConfigError
from evotrainer.judge import settle_audit, with_shortcut_closed
from evotrainer.judge.audits import CONFIDENCE
from evotrainer.projections.branches import BASE
from evotrainer.projections.reader import READER
from evotrainer.records import keys
from evotrainer.records.events import Audited, Invalidated, TrialFinished
from evotrainer.records.names import slug
from evotrainer.records.verdicts import OWN_TRIGGERS, Capability, ShortcutAudit, occasion_of
from evotrainer.rules.evaluations import name_under
from evotrainer.run import skills, trial_specs
from evotrainer.run.context import RunContext

if TYPE_CHECKING:
    from evotrainer.executors.spec import TrialSpec

JUMP = "score_jump"
"""Detector whose finding names no kind of shortcut: every shortcut that can be closed is audited."""
SPLITS = ("search", "gate")
"""Evaluated with the shortcut closed: gate decides, search can be read."""


# -- which branch is questioned ----------------------------------------------------------------------------------------


def questioned_shortcuts(ctx: RunContext, branch: str) -> list[tuple[Capability, str]]:
    """Open capabilities that a finding of the branch asks about, with the detector."""
    out: list[tuple[Capability, str]] = []
    seen = [f for f in ctx.branches[branch].findings if f.severity != "info"]
    for c in ctx.state.shortcuts.to_close(ctx.env_knobs):
        asks = (
            f.detector
            for f in seen
            if (f.validity and (c.answers(f.kind) or f.detector == READER))
            or (f.severity == "critical" and f.kind in c.kinds)
        )
        jumps = (JUMP for f in seen if f.detector == JUMP)
        if trigger := next(asks, "") or next(jumps, ""):
            out.append((c, trigger))
    return out


def examine(ctx: RunContext, n: int, branch: str) -> list[ShortcutAudit]:
    """Audit what the branch's findings question; all audits of the branch there are."""
    if ctx.task.judge.audit != "never":
        for c, trigger in questioned_shortcuts(ctx, branch):
            audit(ctx, n, branch, c, trigger)
    return ctx.state.audits_of(branch)


def audit_all(ctx: RunContext, n: int, branch: str, trigger: str) -> list[ShortcutAudit]:
    """Audit every open shortcut (those that honest work uses aside); all audits of the branch there are."""
    if ctx.task.judge.audit == "promotions":
        for c in ctx.state.shortcuts.closable:
            if ctx.state.shortcuts.is_open(c, ctx.env_knobs):
                audit(ctx, n, branch, c, trigger)
    return ctx.state.audits_of(branch)


def of_start(ctx: RunContext, n: int, branch: str) -> None:
    """Audit a start before anything is searched from it: a search would tune the use of a shortcut, and all that it
    trained would be lost at the certificate, which audits the same."""
    examine(ctx, n, branch)
    settle(ctx, audit_all(ctx, n, branch, "start"))


def proxy_questioned(ctx: RunContext, branch: str, trigger: str, gain: float) -> str:
    """The paid proxy component, where an audit has to compare it as well; else empty.

    Where only the proxy rose, the outcome cannot fall when the shortcut is closed; what was gained, the proxy, can.
    Who says so: a detector that was mined for a contradiction; a finding of a kind that parts the proxy from the
    truth; or no detector at all (of a start, before a promotion, a certificate), and the outcome is not above the
    reference's (`gain`, score units): then the proxy is all that training bought.
    """
    from evotrainer.harness.evolving.gaps import DIVERGED

    pair, b = ctx.state.proxy, ctx.branches[branch]
    if pair is None or b.recipe.rewards.get(pair[0], 0) <= 0:
        return ""
    event = ctx.recorded(keys.gap(branch))
    considered = event.body.considered if event and event.body.trigger == "contradiction" else ()
    mined = any(a.admitted and a.detector.name == trigger for a in considered)
    parted = any(f.detector == trigger and f.kind in DIVERGED for f in b.findings)
    last = trigger in OWN_TRIGGERS and gain <= 0
    return pair[0] if mined or parted or last else ""


# -- evaluations with a shortcut closed --------------------------------------------------------------------------------


def audit(ctx: RunContext, n: int, branch: str, c: Capability, trigger: str) -> ShortcutAudit:
    """The recorded audit of a branch, made first where there is none, or none of the seeds that were added since."""
    b, base = ctx.branches[branch], ctx.state.base
    made = [a for a in ctx.state.audits if (a.branch, a.capability) == (branch, c.name)]
    for known in made:
        if known.confirmed or len(known.trials) >= len(b.complete):
            return known
    ctx.observer.step(f"audits {branch} with {c.name} closed, {occasion_of(trigger)}")
    if base is None or not b.complete:
        raise ConfigError(f"{branch} has no finished trial to audit; finish the run: evotrainer resume")
    opened, closed = ctx.env_knobs | {c.knob: c.open}, ctx.env_knobs | {c.knob: c.closed}
    sides = [
        (name, trials, knobs) for name, trials in ((branch, b.complete), (BASE, [base])) for knobs in (opened, closed)
    ]
    # one call, so that all cores have work
    by_knobs = (
        x for k in (opened, closed) for name, trials, knobs in sides if knobs is k for x in specs(ctx, name, trials, k)
    )
    ctx.run_trials(list(by_knobs))

    def audited() -> Audited:
        evaluated = [evaluations(ctx, *side) for side in sides]
        scored = [
            with_shortcut_closed(trials, e) if e else list(trials)
            for (_, trials, _), e in zip(sides, evaluated, strict=True)
        ]
        settle = partial(settle_audit, branch, c, trigger, *scored, min_effect=ctx.task.judge.min_effect)
        settled = settle()
        gain = settled.score_open - settled.reference_open
        if proxy := proxy_questioned(ctx, branch, trigger, gain):
            both = [settle(confidence=1 - (1 - CONFIDENCE) / 2, measure=m) for m in ("", proxy)]
            settled = next((a for a in both if a.confirmed), both[1])
        names = [tuple(t.trial for t in e or trials) for (_, trials, _), e in zip(sides, evaluated, strict=True)]
        places = ("trials_open", "trials", "reference_trials_open", "reference_trials")
        return Audited(round=n, audit=settled.model_copy(update=dict(zip(places, names, strict=True))))

    found = ctx.record(keys.audited(branch, slug(c.name), len(made) + 1), Audited, audited).audit
    ctx.observer.note(f"audit {found.verdict.replace('_', ' ')}: {found.reason}")
    return found


def evaluations(
    ctx: RunContext, branch: str, trials: Sequence[TrialFinished], knobs: Mapping[str, Any]
) -> list[TrialFinished]:
    """Evaluations that stand in for the trials' own gate scores; none where those were made under the same knobs."""
    todo = specs(ctx, branch, trials, knobs)
    return ctx.run_trials(todo) if todo else []


def specs(ctx: RunContext, branch: str, trials: Sequence[TrialFinished], knobs: Mapping[str, Any]) -> list[TrialSpec]:
    """What is to be evaluated so that a branch's trials have scores under these knobs; nothing where they have them."""
    shortcuts = ctx.state.shortcuts
    if all(shortcuts.same(t.env_knobs, knobs) for t in trials):
        return []
    b = None if branch == BASE else ctx.branches[branch]
    plans = trial_specs.plans(ctx, *SPLITS)
    return [
        trial_specs.evaluation(
            ctx, name_under(shortcuts, t.trial, knobs), b, t.seed, t.policy_path, plans, "audit", knobs
        )
        for t in trials
    ]


# -- what follows ------------------------------------------------------------------------------------------------------


def settle(ctx: RunContext, audits: Sequence[ShortcutAudit]) -> bool:
    """Invalidate what is confirmed; True where anything was."""
    confirmed = [a for a in audits if a.confirmed]
    if confirmed:
        invalidate(ctx, confirmed[0])
    return bool(confirmed)


def invalidate(ctx: RunContext, audit: ShortcutAudit) -> None:
    """The branch and its descendants become invalid; the last valid version is champion again.

    From here on every evaluation of the run has closed what was confirmed.
    """

    def invalidated() -> Invalidated:
        descendants = ctx.state.descendants(audit.branch)
        return Invalidated(
            branch=audit.branch,
            descendants=tuple(descendants),
            reason=audit.reason,
            champion=ctx.state.last_valid((audit.branch, *descendants)),
            capability=audit.capability,
        )

    body = ctx.record(keys.invalidated(audit.branch), Invalidated, invalidated)
    skills.update_skills(ctx)
    fallen = ", ".join((body.branch, *body.descendants))
    ctx.observer.note(f"invalid: {fallen}; {audit.capability} stays closed; champion {body.champion}")

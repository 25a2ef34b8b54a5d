"""Step 9: interim analyses of a round's branches, verdicts, promotions.
`verify` and `why` put the judge's input together by the same function."""

from __future__ import annotations

from collections.abc import Sequence

from evotrainer.errors import IntegrityError
from evotrainer.judge import InterimAnalysis, next_looks
from evotrainer.projections.means import gate_mean
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.events import Judged, Promoted
from evotrainer.records.verdicts import Verdict
from evotrainer.rules.approvals import promotion_question
from evotrainer.rules.equal_compute import control_of
from evotrainer.rules.error_budget import alpha
from evotrainer.rules.judge_input import evaluation_knobs, give_verdict
from evotrainer.run import (
    detector_outcomes,
    equal_compute,
    fresh_seeds,
    guards,
    learning,
    reader,
    readings,
    scaffolds,
    shortcut_audits,
    skills,
    task_sets,
)
from evotrainer.run.approvals import ask_human
from evotrainer.run.context import RunContext
from evotrainer.run.extra_seeds import plan, train_requested_seeds
from evotrainer.run.noise import widen_noise


def decide(ctx: RunContext, n: int, names: Sequence[str]) -> None:
    """Give each branch the seeds that its gain asks for; read, judge, record. An undecided branch gets further seeds
    and is judged again."""
    before = ctx.champion
    plan(ctx, n, names)
    analyse(ctx, n, names)
    while more := train_requested_seeds(ctx, n, names, before):
        analyse(ctx, n, more)
    detector_outcomes.settle(ctx, n)
    skills.distil(ctx, best_first(ctx, names))


def best_first(ctx: RunContext, names: Sequence[str]) -> list[str]:
    """Branches by their mean gate score."""
    return sorted(names, key=lambda x: (-gate_mean(ctx.branches[x].complete), x))


def analyse(ctx: RunContext, n: int, names: Sequence[str]) -> None:
    """One interim analysis of some of a round's branches, best first."""
    ctx.observer.step(f"judges {', '.join(names)}")
    for name in names:
        if ctx.branches[name].complete:
            readings.read_branch(ctx, n, name)
    learning.review(ctx, n, names)
    widen_noise(ctx, names)
    # The analyses of a round share their level, so that judging the best first costs nothing (docs/judge.md).
    # Only one branch a round becomes champion: what else gains may be tried again on top of it.
    analyses = next_looks(ctx.state.verdicts, alpha(ctx.task, ctx.state), len(names))
    for name, analysis in zip(best_first(ctx, names), analyses, strict=True):
        verdict = judge_branch(ctx, n, name, analysis)
        ctx.observer.verdict(verdict)
        if verdict.kind == "invalid" and shortcut_audits.settle(ctx, ctx.state.audits_of(name)):
            continue
        if (
            verdict.kind == "promote"
            and still_valid(ctx, name)
            and ask_human(ctx, n, "verdict", promotion_question(name, verdict.reason), branch=name)
        ):
            promote(ctx, name, ctx.champion)
            fresh_seeds.after_promotion(ctx, name)


def judge_branch(ctx: RunContext, n: int, name: str, analysis: InterimAnalysis) -> Verdict:
    """The recorded verdict of a branch's next interim analysis; made now where there is none."""

    key = keys.judged(name, ctx.branches[name].looks + 1)

    def judged() -> Judged:
        task_sets.look(ctx, "gate", f"judged {key}")  # before the scores are compared
        audits = shortcut_audits.examine(ctx, n, name)
        equal_compute.train_control(ctx, n, name)  # what a kill left of it
        verdict = verdict_on(ctx, n, name, analysis)
        if verdict.verdict.kind == "promote" and shortcut_audits.audit_all(ctx, n, name, "promotion") != audits:
            verdict = verdict_on(ctx, n, name, analysis)
        if equal_compute.needs_control(verdict.verdict) and equal_compute.open_control(ctx, n, ctx.branches[name]):
            equal_compute.train_control(ctx, n, name)
            verdict = verdict_on(ctx, n, name, analysis)
        if verdict.verdict.kind == "promote" and reader.before_promotion(ctx, n, name):
            shortcut_audits.examine(ctx, n, name)
            verdict = verdict_on(ctx, n, name, analysis)
        return verdict

    return ctx.record(key, Judged, judged).verdict


def verdict_on(ctx: RunContext, n: int, name: str, analysis: InterimAnalysis) -> Judged:
    """The judge's answer, once all evaluations are made that it rests on."""
    b = ctx.branches[name]
    control = ctx.branches[control_of(ctx.state, name)]  # the one factor's effect, even after another promotion
    knobs = evaluation_knobs(ctx.task, ctx.state, name)
    scaffolds.measure_alone(ctx, b, control, knobs)
    if knobs is not None:
        for x in (b, control):
            shortcut_audits.evaluations(ctx, x.branch, x.complete, knobs)
    found = give_verdict(ctx.task, ctx.state, n, name, analysis)
    if guards.unread(found.verdict):
        guards.evaluate(ctx, [*control.complete, *b.complete])
        found = give_verdict(ctx.task, ctx.state, n, name, analysis)
    return found


def still_valid(ctx: RunContext, name: str) -> bool:
    """False where a branch, or what it came from, was invalidated before it could be promoted."""
    if any(e.body.branch == name for e in ctx.ledger.events("promoted")):
        return True
    return name not in RunState.of(ctx.ledger.events()).invalid


def promote(ctx: RunContext, name: str, previous: str | None) -> None:
    """Give a branch its version, or take up the one it was given; numbers only go up."""
    given = [e.body for e in ctx.ledger.events("promoted")]
    version = next((p.version for p in given if p.branch == name), keys.version(len(given)))
    body = ctx.record(version, Promoted, lambda: Promoted(version=version, branch=name, previous=previous))
    if previous is not None:
        ctx.observer.note(f"{name}: promoted over {previous}, version {version}")
        ctx.observer.round(ctx.branches[name].round, name)
    if body.branch != name:
        raise IntegrityError(
            f"{version} was given to {body.branch}, not to {name}; run `evotrainer verify {ctx.folder}`"
        )

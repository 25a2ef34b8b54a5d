"""Certification: the champion's last audits, then the cert split, read once."""

from __future__ import annotations

from functools import partial

from evotrainer.projections.branches import BASE, START
from evotrainer.projections.caveats import caveat_line, caveats
from evotrainer.records import keys
from evotrainer.records.events import Certified
from evotrainer.rules.certificate import certificate
from evotrainer.rules.guards import certified_trainings
from evotrainer.run import (
    detector_outcomes,
    fresh_seeds,
    guards,
    reader,
    scaffolds,
    shortcut_audits,
    task_sets,
    trial_specs,
)
from evotrainer.run.context import RunContext

BASE_CERTIFICATION = keys.certification(keys.BASE_TRIAL)


def certify(ctx: RunContext) -> Certified:
    """The cert split, read once: base, starting recipe, champion (trained again on fresh seeds).

    A run that goes on after its end certifies again where its champion is another; start and base keep what they read.
    """
    nth = ctx.state.ends + 1
    key, known = keys.certified(nth), ctx.recorded(keys.certified(nth))
    if known is not None:
        if ctx.recorded(keys.closed(nth)) is None:
            ctx.refresh()  # what was invalidated since stays so; nothing is certified a second time
        body: Certified = known.body
        return body
    last = ctx.state.certified
    if last is not None and ctx.recorded(keys.closed(nth)) is not None:
        return last
    audit_champion(ctx)
    detector_outcomes.settle(ctx, ctx.state.last_round, keys.at_end(nth))
    if last is not None and last.champion == ctx.champion:
        ctx.observer.note(f"{ctx.champion} is certified already; cert is not read again")
        return last
    ctx.observer.step("certifies on the cert split")
    looks = task_sets.look(ctx, "cert", f"certified {key}")  # before cert is read
    (cert,) = trial_specs.plans(ctx, "cert")
    champion = ctx.branches.get(ctx.champion) if ctx.champion != START else None
    start = ctx.branches[START]
    # the long ones first, so that all cores stay busy to the end
    own = fresh_seeds.certification_specs(ctx, champion, cert) if champion else []
    specs = [
        *own,
        trial_specs.evaluation(
            ctx,
            recertify_if_closed(ctx, BASE_CERTIFICATION, nth),
            None,
            0,
            trial_specs.base_dir(ctx),
            (cert,),
            "certify",
        ),
    ]
    again = [(recertify_if_closed(ctx, keys.certification(t.trial), nth), t) for t in start.complete]
    specs += [
        trial_specs.evaluation(ctx, trial, start, t.seed, t.policy_path, (cert,), "certify") for trial, t in again
    ]
    specs += scaffolds.cert_specs(ctx, champion, partial(recertify_if_closed, ctx, nth=nth))
    ctx.run_trials(specs)
    if ctx.task.guard:
        certified_by = champion or start
        guards.evaluate(ctx, certified_trainings(ctx.task, ctx.state, certified_by, fresh=champion is not None))
    if champion:
        fresh_seeds.reestimate(ctx, champion.branch)

    def certified() -> Certified:
        counts = {"of_set": looks.number, "by_runs": looks.runs} if looks else {}
        found = certificate(ctx.task, ctx.state, ctx.ledger.events(), ctx.rollouts.views)
        return found.model_copy(update=counts)

    body = ctx.record(key, Certified, certified)
    for branch, found in caveats(ctx.ledger.events()).items():
        ctx.observer.note(f"caveat on the certificate of {branch}: {caveat_line(found)}")
    return body


def recertify_if_closed(ctx: RunContext, trial: str, nth: int) -> str:
    """The evaluation on cert to use: another one where a shortcut was closed since it was made."""
    known = ctx.recorded(keys.finished(trial))
    same = known is None or ctx.state.shortcuts.same(known.body.env_knobs, ctx.env_knobs)
    return trial if same else keys.recertified(trial, nth)


def audit_champion(ctx: RunContext) -> None:
    """The champion's last test before certification: read, shortcuts closed, down to a version that stays valid."""
    ctx.refresh()
    while ctx.champion != BASE:
        b = ctx.branches[ctx.champion]
        reader.read_branch(ctx, b.round, b.branch, "certificate")
        shortcut_audits.examine(ctx, b.round, b.branch)
        if not shortcut_audits.settle(ctx, shortcut_audits.audit_all(ctx, b.round, b.branch, "certification")):
            return

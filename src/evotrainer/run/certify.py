"""Certification: the champion's last audits, then the cert split, read once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from evotrainer.errors import TrainerError
from evotrainer.judge import CertEntry
from evotrainer.judge import certify as certificate
from evotrainer.projections.branches import BASE, START
from evotrainer.projections.caveats import caveats, told
from evotrainer.records import keys
from evotrainer.records.events import Certified, TrialFinished
from evotrainer.rules.decoding import decoding, policies
from evotrainer.rules.gains import with_gains
from evotrainer.rules.scaffolds import cert_alone
from evotrainer.run import detector_outcomes, fresh_seeds, reader, scaffolds, shortcut_audits, task_sets, trial_specs
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
            ctx.take_up()  # what was invalidated since stays so; nothing is certified a second time
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
            ctx, again_if_closed(ctx, BASE_CERTIFICATION, nth), None, 0, trial_specs.base_dir(ctx), (cert,), "certify"
        ),
    ]
    again = [(again_if_closed(ctx, keys.certification(t.trial), nth), t) for t in start.complete]
    specs += [
        trial_specs.evaluation(ctx, trial, start, t.seed, t.policy_path, (cert,), "certify") for trial, t in again
    ]
    specs += scaffolds.cert_specs(ctx, champion, partial(again_if_closed, ctx, nth=nth))
    done = {t.trial: t for t in ctx.run_trials(specs)}
    if champion:
        fresh_seeds.reestimate(ctx, champion.branch)

    def certified() -> Certified:
        entries = [
            entry(ctx, done, "base", BASE, [specs[len(own)].trial]),
            entry(ctx, done, "start", START, [trial for trial, _ in again]),
        ]
        if champion:
            entries.append(entry(ctx, done, "champion", champion.branch, [s.trial for s in own]))
        found = certificate(entries, ctx.champion, proxy=ctx.state.proxy, noise=ctx.state.noise)
        counts = {"of_set": looks.number, "by_runs": looks.runs} if looks else {}
        finished = [e.body for e in ctx.ledger.events("finished")]
        texts = cert_alone(champion, ctx.task.recipe, next(iter(entries[0].scores.values())), finished)
        found = found.model_copy(update=counts | {"look": 1 + sum(1 for _ in ctx.ledger.events("certified"))})
        return with_gains(found.model_copy(update={"scaffold": texts}), ctx.ledger.events(), ctx.rollouts.views)

    body = ctx.record(key, Certified, certified)
    for branch, found in caveats(ctx.ledger.events()).items():
        ctx.observer.note(f"caveat on the certificate of {branch}: {told(found)}")
    return body


def again_if_closed(ctx: RunContext, trial: str, nth: int) -> str:
    """The evaluation on cert to use: another one where a shortcut was closed since it was made."""
    known = ctx.recorded(keys.finished(trial))
    same = known is None or ctx.state.shortcuts.same(known.body.env_knobs, ctx.env_knobs)
    return trial if same else keys.certified_anew(trial, nth)


def audit_champion(ctx: RunContext) -> None:
    """The champion's last test before certification: read, shortcuts closed, down to a version that stays valid."""
    ctx.take_up()
    while ctx.champion != BASE:
        b = ctx.branches[ctx.champion]
        reader.read_branch(ctx, b.round, b.branch, "certificate")
        shortcut_audits.examine(ctx, b.round, b.branch)
        if not shortcut_audits.settle(ctx, shortcut_audits.everything(ctx, b.round, b.branch, "certification")):
            return


def entry(ctx: RunContext, done: dict[str, TrialFinished], name: str, branch: str, trials: Sequence[str]) -> CertEntry:
    """One policy family's scores on cert, by seed; TrainerError where no trial has any."""
    ok = [done[x] for x in trials if done[x].status == "complete"]
    scores = {t.seed: s for t in ok for s in t.scores if s.split == "cert" and s.per_task}
    if not scores:
        why = done[trials[0]].error or "no attempt was graded"
        raise TrainerError(f"certification of {name} failed: {why}; `evotrainer resume` tries again")
    read = [t for t in ok if t.seed in scores]
    how, weights = decoding(ctx.state, branch), policies(ctx.state, branch, read)
    return CertEntry(name=name, branch=branch, scores=scores, decoding=how, policies=weights)

"""Effects, computed again: backtests and audits from what they replayed and evaluated, winners on fresh seeds,
the certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from evotrainer.judge import settle_audit
from evotrainer.projections.branches import BASE, START
from evotrainer.projections.shortcuts import Shortcuts
from evotrainer.records.chain import Event
from evotrainer.records.differences import differences
from evotrainer.records.events import TrialFinished
from evotrainer.rules.certificate import certificate
from evotrainer.rules.fresh_seeds import reestimate
from evotrainer.rules.reading_context import harness_context, refused_code
from evotrainer.sandbox.reward_runner import RewardRunner
from evotrainer.verify.report import Problem, Record, check_list, recomputed, six_decimals
from evotrainer.verify.verdicts import complete, judged_trials


def backtested(record: Record, event: Event) -> Iterator[Problem]:
    """Its numbers follow from the stored rollouts;
    what contradicts its own hypothesis is vetoed, where the task file asks for it."""
    b = event.body
    vetoes = b.backtest.verdict == "contradicts" and (record.task.run.veto or refused_code(b.backtest))
    if vetoes and not b.vetoed:
        yield Problem("backtested", f"{event.id}: vetoed is {b.vetoed}, its backtest {b.backtest.verdict}")
    yield from (Problem("backtested", f"{event.id}: {d}") for d in recheck_backtest(record, event))


def recheck_backtest(record: Record, event: Event) -> list[str]:
    """What differs where a recorded backtest is replayed again, on the stored search rollouts that the champion of its
    round had then. StoreError where they are gone or damaged.
    """
    from evotrainer.harness.whatif.backtest import backtest

    b, state = event.body, record.state_before(event)
    champion = state.branches[state.incumbent or START]
    stored = [t for t in champion.complete if t.parts]
    batch = record.rollouts.batch(*(t.trial for t in stored))
    with closing(RewardRunner(record.task.sandbox.accept_tier_e)) as scorer:
        context = harness_context(record.task, state, champion.branch, scorer=scorer, hooks=scorer)
        fresh = backtest(b.intervention, champion.recipe, batch, context)
    old, new = b.backtest.model_dump(mode="json"), fresh.model_dump(mode="json")
    numbers = old.pop("numbers"), new.pop("numbers")
    wrong = differences(old, new)
    for k in sorted(numbers[0].keys() | numbers[1].keys()):
        x, y = (n.get(k) for n in numbers)
        known = x is not None and y is not None
        wrong += six_decimals(f"numbers.{k}", x, y) if known else differences(x, y, f"numbers.{k}")
    return wrong


def audit_differences(record: Record, event: Event) -> list[str]:
    """Numbers of a recorded audit that the ledger's own bodies do not give again; empty where it holds."""
    a, shortcuts = event.body.audit, Shortcuts.of(record.opened.environment)
    finished = {e.body.trial: e.body for e in record.before(event, "finished")}
    named = (a.trials_open, a.trials, a.reference_trials_open, a.reference_trials)
    if gone := [t for names in named for t in names if t not in finished]:
        return [f"it names {gone[0]}, which had not finished"]
    capability = next((c for c in shortcuts.capabilities if c.name == a.capability), None)
    if capability is None:
        return [f"the environment declares no capability {a.capability}"]
    fresh = settle_audit(
        a.branch,
        capability,
        a.trigger,
        *([finished[t] for t in names] for names in named),
        split=a.split,
        min_effect=record.task.judge.min_effect,
        confidence=a.confidence,
        measure=a.measure,
    )
    was, now = (x.model_dump(mode="json", exclude={"trigger", "reference"}) for x in (a, fresh))
    return differences(was, now)


def check_audit(record: Record, event: Event) -> Iterator[Problem]:
    """An audit compares every complete trial of the branch, each with the capability open and with it closed."""
    a, shortcuts = event.body.audit, Shortcuts.of(record.opened.environment)
    finished = {e.body.trial: e.body for e in record.before(event, "finished")}
    own = [t.trial for t in complete(record, judged_trials(record, a.branch, event), event)]
    for what, needed, value in (
        ("trials_open", own, a.open),
        ("trials", own, a.closed),
        ("reference_trials_open", [BASE], a.open),
        ("reference_trials", [BASE], a.closed),
    ):
        names = getattr(a, what)
        repeated = [next((t for t in needed if repeats(finished, n, t)), n) for n in names]
        yield from check_list("audited", event, what, repeated, needed)
        for n in names:
            if n in finished and str(finished[n].env_knobs.get(a.knob, shortcuts.default(a.knob))) != str(value):
                yield Problem("audited", f"{event.id}: {n} was not evaluated with {a.knob} = {value}")


def repeats(finished: Mapping[str, TrialFinished], evaluation: str, trial: str) -> bool:
    """Is it that trial itself, or an evaluation of the same branch's policy of the same seed?"""
    a, b = finished.get(evaluation), finished.get(trial)
    return evaluation == trial or (a is not None and b is not None and (a.branch, a.seed) == (b.branch, b.seed))


def audited(record: Record, event: Event) -> Iterator[Problem]:
    yield from check_audit(record, event)
    yield from (Problem("audited", f"{event.id}: {d}") for d in audit_differences(record, event))


def fresh_seeds(record: Record, event: Event) -> Iterator[Problem]:
    """A winner's effect, from the fresh trainings of the sides that there were."""
    yield from recomputed(event, reestimate(record.task, record.state_before(event), event.body.branch))


def certified(record: Record, event: Event) -> Iterator[Problem]:
    """The certificate, from the scores on cert and the rollouts that there were; `verify.task_sets` looks into the
    register, whose counts are taken as recorded."""
    counts = {"of_set": event.body.of_set, "by_runs": event.body.by_runs}
    state, before = record.state_before(event), record.before(event)
    fresh = certificate(record.task, state, before, record.rollouts.views)
    yield from recomputed(event, fresh.model_copy(update=counts))

"""Effects, computed again: backtests and audits from what they replayed and evaluated, winners on fresh seeds,
the certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from evotrainer.judge import CertEntry, certify, reestimated, settle_audit
from evotrainer.projections.branches import BASE, START
from evotrainer.projections.shortcuts import Shortcuts
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.differences import differences
from evotrainer.records.events import Reestimated, SplitScore, TrialFinished
from evotrainer.records.split_scores import readable
from evotrainer.rules.decoding import decoding, policies
from evotrainer.rules.fresh_seeds import fresh_sides
from evotrainer.rules.gains import with_gains
from evotrainer.rules.reading_context import harness_context, refused_code
from evotrainer.rules.scaffolds import cert_alone
from evotrainer.sandbox.reward_runner import RewardRunner
from evotrainer.verify.report import Problem, Record, named, six_decimals
from evotrainer.verify.verdicts import complete, due


def backtested(record: Record, event: Event) -> Iterator[Problem]:
    """Its numbers follow from the stored rollouts;
    what contradicts its own hypothesis is vetoed, where the task file asks for it."""
    b = event.body
    vetoes = b.backtest.verdict == "contradicts" and (record.task.run.veto or refused_code(b.backtest))
    if vetoes and not b.vetoed:
        yield Problem("backtested", f"{event.id}: vetoed is {b.vetoed}, its backtest {b.backtest.verdict}")
    yield from (Problem("backtested", f"{event.id}: {d}") for d in backtest_again(record, event))


def backtest_again(record: Record, event: Event) -> list[str]:
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


def looked_at(record: Record, event: Event) -> Iterator[Problem]:
    """An audit compares every complete trial of the branch, each with the capability open and with it closed."""
    a, shortcuts = event.body.audit, Shortcuts.of(record.opened.environment)
    finished = {e.body.trial: e.body for e in record.before(event, "finished")}
    own = [t.trial for t in complete(record, due(record, a.branch, event), event)]
    for what, needed, value in (
        ("trials_open", own, a.open),
        ("trials", own, a.closed),
        ("reference_trials_open", [BASE], a.open),
        ("reference_trials", [BASE], a.closed),
    ):
        names = getattr(a, what)
        repeated = [next((t for t in needed if repeats(finished, n, t)), n) for n in names]
        yield from named("audited", event, what, repeated, needed)
        for n in names:
            if n in finished and str(finished[n].env_knobs.get(a.knob, shortcuts.default(a.knob))) != str(value):
                yield Problem("audited", f"{event.id}: {n} was not evaluated with {a.knob} = {value}")


def repeats(finished: Mapping[str, TrialFinished], evaluation: str, trial: str) -> bool:
    """Is it that trial itself, or an evaluation of the same branch's policy of the same seed?"""
    a, b = finished.get(evaluation), finished.get(trial)
    return evaluation == trial or (a is not None and b is not None and (a.branch, a.seed) == (b.branch, b.seed))


def audited(record: Record, event: Event) -> Iterator[Problem]:
    yield from looked_at(record, event)
    yield from (Problem("audited", f"{event.id}: {d}") for d in audit_differences(record, event))


def fresh_seeds(record: Record, event: Event) -> Iterator[Problem]:
    r = event.body
    finished = {e.body.trial for e in record.before(event, "finished")}
    if gone := sorted({*r.trials, *r.control_trials, *r.start_trials, *r.evaluations} - finished):
        yield Problem("reestimated", f"{event.id}: it names {gone[0]}, which had not finished")
        return
    state = record.state_before(event)
    if r.branch not in state.branches:
        yield Problem("reestimated", f"{event.id}: {r.branch} was never opened")
        return
    there = fresh_sides(record.task, state, r.branch)
    names = [[t.trial for t in side] for side in there.trials]
    sides = {"trials": names[0], "control_trials": names[1], "start_trials": names[2] if len(names) > 2 else []}
    for what, needed in sides.items():
        yield from named("reestimated", event, what, getattr(r, what), needed)
    verdicts = [e.body.verdict for e in record.before(event, "judged") if e.body.verdict.branch == r.branch]
    noise = record.before(event, "noise")
    expected = {
        "control": there.branches[1],
        "control_fresh": there.control_fresh,
        "selected": verdicts[-1].effect if verdicts else None,
        "noise": noise[-1].id if noise else "",
        "seeds": tuple(sorted(t.seed for t in there.trials[0])),
    }
    for what, value in expected.items():
        if getattr(r, what) != value:
            yield Problem("reestimated", f"{event.id}: {what}: {getattr(r, what)} in the ledger, {value} recomputed")
    yield from (Problem("reestimated", f"{event.id}: {d}") for d in again(r, record.before(event)))


def again(recorded: Reestimated, events: Sequence[Event]) -> list[str]:
    """Numbers of a recorded re-estimation that the ledger's own bodies do not give again; empty where it holds."""
    finished = {e.body.trial: e.body for e in events if e.kind == "finished"}
    names = [x for x in (recorded.trials, recorded.control_trials, recorded.start_trials) if x]
    sides = [[finished[t] for t in x] for x in names]
    stand_ins = [finished[t] for t in recorded.evaluations]
    evaluated: list[list[TrialFinished]] = []
    for side in sides:
        trained = {(t.branch, t.seed) for t in side}
        evaluated.append([e for e in stand_ins if (e.branch, e.seed) in trained])
    fresh = reestimated(
        recorded.branch,
        recorded.control,
        START,
        sides,
        evaluated,
        {e.id: e.body for e in events if e.kind == "noise"},
        recorded.noise,
        selected=recorded.selected,
        control_fresh=recorded.control_fresh,
        confidence=recorded.effect.confidence,
        split=recorded.split,
    )
    wrong = []
    for name in ("effect", "start"):
        old, new = getattr(recorded, name), getattr(fresh, name)
        if old and new:
            wrong += differences(old.model_dump(), new.model_dump(), name)
    return wrong


def read_cert(trials: Sequence[TrialFinished], name: str) -> bool:
    """Did a trial read cert, or not finish complete?"""
    own = [t for t in trials if t.trial == name]
    return any(t.status != "complete" or any(s.split == "cert" for s in t.scores) for t in own)


def certified(record: Record, event: Event) -> Iterator[Problem]:
    body = event.body
    champion = record.state_before(event).champion or BASE
    if body.champion != champion:
        yield Problem("certified", f"{body.champion} is certified as champion; it was {champion}")
    needed = [("base", BASE), ("start", START)] + ([("champion", champion)] if champion not in (BASE, START) else [])
    yield from named("certified", event, "rows", [(row.name, row.branch) for row in body.rows], needed)
    entries = []
    for row in body.rows:
        done = [e.body for e in record.before(event, "finished") if e.body.branch == row.branch]
        done = [t for t in done if not keys.has_own_texts(t.trial)]
        read: dict[int, SplitScore] = {}
        of: dict[int, TrialFinished] = {}
        for t in done:
            of_cert = [s for s in t.scores if s.split == "cert" and readable(s, t.trial).per_task]
            if t.status == "complete" and of_cert:
                read[t.seed], of[t.seed] = of_cert[-1], t
        scores = {seed: read[seed] for seed in row.seeds if seed in read}
        seeds = record.task.run.certify_seeds if row.name == "champion" else ()
        names = due(record, START, event) if row.name == "start" else [keys.training(row.branch, s) for s in seeds]
        asked = {t.seed for t in complete(record, names, event)}
        finished = {t.trial for t in done}
        gone = [n for n in names if n in finished and keys.certification(n) not in finished and not read_cert(done, n)]
        if gone or (row.name == "champion" and asked != set(seeds)):
            yield Problem(
                "certified", f"{row.name}: cert was not read of all of its trainings: {gone or sorted(asked)}"
            )
        if set(scores) != set(read) or set(scores) != set(row.seeds):
            yield Problem(
                "certified", f"{row.name}: seeds {row.seeds} were certified, cert was read of {sorted(scores)}"
            )
            return
        how = decoding(record.state_before(event), row.branch)
        weights = policies(record.state_before(event), row.branch, [of[s] for s in sorted(scores)])
        entries.append(CertEntry(name=row.name, branch=row.branch, scores=scores, decoding=how, policies=weights))
    noise = record.before(event, "noise")
    fresh = certify(
        entries, body.champion, proxy=record.state_before(event).proxy, noise=noise[-1].body if noise else None
    )
    fresh = with_gains(fresh, record.before(event), record.rollouts.views)
    counts = {"of_set": body.of_set, "by_runs": body.by_runs}  # `verify.task_sets` looks into the register
    every = [e.body for e in record.before(event, "finished")]
    tried = record.state_before(event).branches.get(champion) if champion != START else None
    own = cert_alone(tried, record.task.recipe, next(iter(entries[0].scores.values())), every)
    fresh = fresh.model_copy(update=counts | {"scaffold": own, "look": 1 + len(record.before(event, "certified"))})
    for d in differences(body.model_dump(mode="json"), fresh.model_dump(mode="json")):
        yield Problem("certified", d)

"""Verification of a run folder: is everything the ledger says still true of what lies on the disk?

One check per kind of event: here those of what the records prove by themselves; the table of all is `verify.checks`.
Kinds that only the chain can vouch for are listed with the reason; a kind that is in neither is reported as unchecked.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from evotrainer.errors import ConfigError, StoreError
from evotrainer.factors.change_rules import OF_A_START, RECORDED, ProposedChange, why_not
from evotrainer.projections.branches import BASE
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.canaries import flip_line
from evotrainer.records.chain import Event
from evotrainer.records.durable import writer_of
from evotrainer.records.events import TrialFinished, TrialIntended
from evotrainer.records.head import SHORTEST
from evotrainer.records.interventions import Intervention
from evotrainer.records.ledger import Ledger
from evotrainer.records.recipe import short
from evotrainer.records.text import counted
from evotrainer.verify import files
from evotrainer.verify.report import EventCheck, Problem, Record, VerifyReport, merge_same_cause

WRITTEN_SOON_S = 0.5
"""After which a run that is being written has named in its ledger what it has put into its folder."""


def verify_run(folder: Path | str, checks: Mapping[str, EventCheck] | None = None, head: str = "") -> VerifyReport:
    """Check a run folder whole: the chain, one check per kind of event, every file the ledger vouches for.

    `checks`: kind -> check, in place of `CHECKS`. `head`: hash of an event that was noted earlier; the ledger must hold
    it. Reads only, and may be used while the run is writing. Raises StoreError where there is no ledger to read,
    ConfigError for a `head` that is no hash.
    """
    folder = Path(folder)
    checks = CHECKS if checks is None else checks
    problems: list[Problem] = []
    writer = writer_of(folder / "ledger.db.lock")
    with Ledger.open(folder / "ledger.db", readonly=True) as ledger:
        problems += [Problem("ledger", p) for p in ledger.verify()]
        notes = ledger.blind_spots()
        notes += files.unknown_files(folder)
        try:
            events = ledger.events()
        except StoreError:  # already among the problems; whatever rests on events would only follow from it
            return _without_events(folder, problems, notes)
    record = Record(folder, events)
    if head:
        since = _since(events, head)
        if since is None:
            text = "no event has the noted hash: events were cut off the end, or the ledger was rewritten"
            problems.append(Problem("head", text))
        elif since:
            notes.append(
                f"recorded since the noted head: {counted(len(since), 'event')}: {', '.join(e.id for e in since)}"
            )
    problems += [Problem("lineage", p) for p in (*record.state.problems, *refused_branches(record.state))]
    for event in events:
        if event.kind in checks:
            problems += checks[event.kind](record, event)
    problems += [Problem("rollouts", p) for p in files.stores(folder, record.checked)]
    problems += [Problem("environment", p) for p in files.copies(folder, events, record.checked)]
    unnamed = _unnamed(folder, events)
    if unnamed and writer is not None and events:  # a run that goes on may have named them since
        time.sleep(WRITTEN_SOON_S)
        with Ledger.open(folder / "ledger.db", readonly=True) as ledger:
            unnamed = [p for p in unnamed if p in _unnamed(folder, ledger.events())]
    problems += unnamed
    for event in record.of("run"):
        corrected = {k: sha for e in record.of("resumed") for k, sha in e.body.files.items()}
        notes += files.changed_inputs(event.body, corrected)
        notes += [f"{k} was corrected after the run began, before a training had finished" for k in corrected]
    notes += [flip_line(t.trial, f) for t in record.finished.values() for f in t.canary_flips]
    problems += [Problem("encryption", p) for p in locked_after_end(record)]
    notes += unread(record)
    kinds = dict.fromkeys(e.kind for e in events)
    counts = {"events": len(events), "branches": len(record.state.branches), "trials": len(record.finished)}
    return VerifyReport(
        folder,
        tuple(merge_same_cause(problems)),
        {**record.checked, **counts},
        files.last_hash(events),
        tuple(notes),
        tuple(k for k in kinds if k in CHAIN_ONLY and k not in checks),
        tuple(k for k in kinds if k not in checks and k not in CHAIN_ONLY),
        tuple(dict.fromkeys(record.locked)),
    )


def _without_events(folder: Path, problems: list[Problem], notes: list[str]) -> VerifyReport:
    checked: Counter[str] = Counter(events=0)
    problems += [Problem("rollouts", p) for p in files.stores(folder, checked)]
    untold = "the ledger cannot be believed, so nothing that rests on its events was checked"
    return VerifyReport(folder, tuple(problems), dict(checked), notes=(*notes, untold))


def _unnamed(folder: Path, events: list[Event]) -> list[Problem]:
    """Trials and skills in the folder that these events do not speak of."""
    trials = {e.body.trial for e in events if isinstance(e.body, TrialIntended | TrialFinished)}
    finished = {e.body.trial for e in events if isinstance(e.body, TrialFinished)}
    known = trials | {keys.remainder(t) for t in trials - finished}
    found = [Problem("rollouts", p) for p in files.unnamed_trials(folder, known)]
    return found + [Problem("skill", p) for p in files.unnamed_skills(folder, events)]


def _since(events: list[Event], head: str) -> list[Event] | None:
    """Events after the one whose hash was noted elsewhere; None where the chain has no such event."""
    digest = head.strip().lower().rpartition(" ")[2]
    if len(digest) < SHORTEST or set(digest) - set("0123456789abcdef"):
        raise ConfigError(f"{head!r} is no head: give the {SHORTEST} to 64 hex digits printed at the end of the run")
    at = next((e.seq for e in events if e.hash.startswith(digest)), None)
    return None if at is None else events[at:]


def locked_after_end(record: Record) -> Iterator[str]:
    """What an end should have made readable, and did not."""
    last = max((e.seq for e in record.of("closed")), default=0)
    gone = [e.id for e in record.events if e.id in record.locked and e.seq <= last]
    if gone:
        yield f"{', '.join(gone[:3])}: the keys that the run revealed do not open what is encrypted in them"


def unread(record: Record) -> Iterator[str]:
    """What could not be checked, since it is encrypted until the run closes."""
    if not (held := dict.fromkeys(record.locked)):
        return
    finished = sum(i.endswith("/finished") for i in held)
    yield (
        f"gate and cert are encrypted until the run closes: of {counted(finished, 'trial')} single scores and rollouts "
        f"were only compared with their checksums, {counted(len(held) - finished, 'decision')} resting on them not "
        "computed again"
    )


# -- the checks --------------------------------------------------------------------------------------------------------


def _run(record: Record, event: Event) -> Iterator[Problem]:
    if event.seq != 1:
        yield Problem("run", f"event {event.seq} opens the run, and is not the first")
    problems = list(files.task_file(record.folder, event.body))
    yield from (Problem("run", p) for p in problems)
    payable = event.body.environment.get("payable")
    if payable is not None and not problems and list(record.task.environment.get("payable", ())) != payable:
        yield Problem("run", f"{payable} is payable in the ledger, not in the task file")


def _branch(record: Record, event: Event) -> Iterator[Problem]:
    b = event.body
    if b.recipe_hash != b.recipe.hash:
        yield Problem("lineage", f"branch {b.branch}: recipe hash {b.recipe_hash} recorded, {b.recipe.hash} computed")
    if b.parent is not None and b.parent not in {e.body.branch for e in record.before(event, "branch")}:
        yield Problem("lineage", f"branch {b.branch} is opened before its parent {b.parent}")
    proposals = [e.body for e in record.before(event, "proposed") if e.body.round == b.round]
    if (
        b.intervention is not None
        and not b.matches
        and not any(b.intervention in p.proposal.interventions for p in proposals)
    ):
        text = "hypothesis, change and forecast are those of no proposal of its round"
        yield Problem("branch", f"branch {b.branch}: {text}")


def _intended(record: Record, event: Event) -> Iterator[Problem]:
    t = event.body
    if event.id != keys.intended(t.trial):
        yield Problem("trials", f"event {event.id} intends trial {t.trial}")
    done = record.finished.get(t.trial)
    if done is not None and done.steps and not t.train:
        yield Problem("trials", f"trial {t.trial} was to evaluate only, and trained {done.steps} steps")


def _finished(record: Record, event: Event) -> Iterator[Problem]:
    t, folder, checked = event.body, record.folder, record.checked
    yield from (Problem("policy", p) for p in files.policy(folder, t, checked))
    yield from (Problem("trials", p) for p in files.named_files(folder, t, checked))
    yield from (Problem("rollouts", p) for p in files.parts(folder, t, checked))
    for s in t.scores:
        if s.encrypted:
            record.locked.append(event.id)
            continue
        for what, score, per_task in (
            (s.split, s.score, s.per_task),
            (f"greedy {s.split}", s.greedy, s.greedy_per_task),
        ):
            mean = sum(per_task.values()) / len(per_task) if per_task else None
            same = mean is score if mean is None or score is None else abs(mean - score) <= 1e-9
            if not same:
                yield Problem(
                    "trials", f"trial {t.trial}: its {what} score {score} is not the mean {mean} of its tasks"
                )


def _round(record: Record, event: Event) -> Iterator[Problem]:
    r, state = event.body, record.state_before(event)
    opened = {BASE, *(e.body.branch for e in record.before(event, "branch"))}
    champion = state.champion or BASE
    if r.champion not in opened:
        yield Problem("round", f"round {r.round} starts from {r.champion}, which was never opened")
    elif champion != r.champion:
        yield Problem("round", f"round {r.round} starts from {r.champion}; the champion was {champion}")
    versions = {e.body.version for e in record.before(event, "harness")} or {"h0"}
    if r.harness not in versions:
        yield Problem("round", f"round {r.round} names harness {r.harness}, which was not recorded before")
    if r.closed != state.confirmed:
        yield Problem(
            "round", f"round {r.round} is evaluated with {r.closed} closed; audits had confirmed {state.confirmed}"
        )


def _planned(record: Record, event: Event) -> Iterator[Problem]:
    opened = {e.body.branch: e.body.round for e in record.before(event, "branch")}
    for b in event.body.branches:
        if opened.get(b) != event.body.round:
            yield Problem("planned", f"round {event.body.round} plans branch {b}, which it did not open")


def _backtested(record: Record, event: Event) -> Iterator[Problem]:
    b = event.body
    if b.vetoed and b.backtest.verdict != "contradicts":
        yield Problem("backtested", f"{event.id}: vetoed is {b.vetoed}, its backtest {b.backtest.verdict}")
    named = keys.proposed(b.round, keys.revision(event.id))
    proposed = next((e.body.proposal.interventions for e in record.before(event, "proposed") if e.id == named), ())
    if b.intervention not in proposed[b.index : b.index + 1]:
        yield Problem("backtested", f"{event.id}: what was replayed is not intervention {b.index} of {named}")


def _promoted(record: Record, event: Event) -> Iterator[Problem]:
    p, given = event.body, record.before(event, "promoted")
    if p.version != keys.version(len(given)) or event.id != p.version:
        yield Problem("promoted", f"event {event.id} gives version {p.version}; it is promotion number {len(given)}")
    if p.previous is not None and p.previous not in {e.body.branch for e in given}:
        yield Problem("promoted", f"{p.version} follows {p.previous}, which was no version")


def _invalidated(record: Record, event: Event) -> Iterator[Problem]:
    i, then = event.body, record.state_before(event)
    asked = [e.body.audit for e in record.before(event, "audited") if e.body.audit.branch == i.branch]
    if not any(a.confirmed and a.capability == i.capability for a in asked):
        yield Problem("invalidated", f"{i.branch} is invalidated without an audit that confirmed {i.capability}")
    if set(i.descendants) != set(then.descendants(i.branch)):
        yield Problem(
            "invalidated", f"{i.branch}: its descendants are {then.descendants(i.branch)}, not {i.descendants}"
        )
    if i.champion != then.last_valid((i.branch, *i.descendants)):
        yield Problem(
            "invalidated",
            f"after {i.branch} was found invalid, {i.champion} is champion; the last valid version is another",
        )


def _resumed(record: Record, event: Event) -> Iterator[Problem]:
    n = len(record.before(event, "resumed")) + 1
    if event.body.n != n or event.id != keys.resumed(n):
        yield Problem("resumed", f"event {event.id} is resumption number {n}")


def _closed(record: Record, event: Event) -> Iterator[Problem]:
    c = event.body
    then = record.state_before(event).champion or BASE
    if not any(e.body.branch != BASE for e in record.before(event, "finished")):
        then = BASE  # nothing was trained
    if event.id != keys.closed(n := len(record.before(event, "closed")) + 1):
        yield Problem("closed", f"event {event.id} is end number {n}")
    if c.champion != then:
        yield Problem("closed", f"the run closed with champion {c.champion}; it was {then}")
    used = round(sum(e.body.cpu_s for e in record.before(event, "finished")), 1)
    if abs(used - c.cpu_s) > 0.051:
        yield Problem("closed", f"the run closed with {c.cpu_s} CPU-s; its trials used {used}")


CHECKS: dict[str, EventCheck] = {
    "run": _run,
    "branch": _branch,
    "intended": _intended,
    "finished": _finished,
    "round": _round,
    "planned": _planned,
    "backtested": _backtested,
    "promoted": _promoted,
    "invalidated": _invalidated,
    "resumed": _resumed,
    "closed": _closed,
}
"""Kind -> what the records prove by themselves."""

CHAIN_ONLY: dict[str, str] = {
    "proposed": "an agent's words",
    "refused": "a branch that never was",
    "escalated": "what was tried after failures",
    "diagnosed": "what the harness read; `evotrainer health` shows it, `why` quotes it",
}
"""Kind -> what it is, where only the chain protects it."""


def refused_branches(state: RunState) -> Iterator[str]:
    """Branches that a run would not train, by the rules of every change or, where they have no parent, of a start."""
    environment = state.environment
    for b in state.branches.values():
        parent, i = state.branches.get(b.parent or ""), b.intervention
        if (b.parent is None) != (i is None):
            yield f"branch {b.branch}: a branch has a parent if and only if it has an intervention"
        elif parent is not None and i is not None:
            change = ProposedChange(parent.recipe, {i.factor: i.new}, environment=environment, made=b.recipe)
            if why := why_not(change, [*RECORDED, partial(_as_it_was, i)]):
                yield f"branch {b.branch} declares {i.factor}: {short(i.old)} -> {short(i.new)}: {why}"
        elif why := why_not(ProposedChange(b.recipe, environment=environment), OF_A_START):
            yield f"branch {b.branch}: {why}"


def _as_it_was(i: Intervention, c: ProposedChange) -> str:
    """The old value that an intervention names is the parent's."""
    same = c.parent.with_factor(i.factor, i.old).hash == c.parent.hash
    return "" if same else f"its parent has {short(c.parent.value(i.factor))}"

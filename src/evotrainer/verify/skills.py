"""`verify` of skills: the copy of the library, and what each branch taught."""

from __future__ import annotations

from collections.abc import Iterator

from evotrainer.projections.skill_evidence import decided, trial_of
from evotrainer.records.chain import Event, EventRow
from evotrainer.records.events import SkillDistilled
from evotrainer.skills import check_trial, content_hash, library_problems
from evotrainer.verify.report import Problem, Record


def prove_library(record: Record, event: Event) -> Iterator[Problem]:
    """The copy of the library against what the ledger recorded of it."""
    record.checked["skills"] += len(event.body.skills)
    yield from (Problem("library", p) for p in library_problems(record.folder, event.body))


def prove_skill(record: Record, event: Event) -> Iterator[Problem]:
    """What a branch taught, computed again from the events before; and, of a skill's last event, its files."""
    b: SkillDistilled = event.body
    before = record.before(event)
    known = decided(before, b.branch)
    p = b.trial.proof
    if known is None or (p.id, p.hash) != (known.id, known.hash):
        yield Problem("skill", f"{event.id}: rests on event {p.id}, which did not decide {b.branch}")
        return
    yield from (Problem("skill", f"{event.id}: {x}") for x in check_trial(b.trial))
    fresh, key = trial_of(before, b.branch, EventRow(**p.model_dump()))
    wrong = [k for k, v in fresh.model_dump().items() if getattr(b.trial, k) != getattr(fresh, k)]
    if wrong or key != (b.bottleneck, b.factor, b.direction):
        yield Problem("skill", f"{event.id}: {', '.join(wrong) or 'its trigger'} does not follow from the ledger")
    events = [e for e in record.of("skill") if e.body.skill == b.skill]
    if events[-1] is not event:
        return
    record.checked["skills"] += 1
    there = content_hash(record.folder / "skills" / b.skill)
    # the event comes first: a run killed in between has the folder of the event before, or none
    behind = event.seq == len(record.events) and (
        there in [e.body.sha256 for e in events[:-1]]
        or (len(events) == 1 and not (record.folder / "skills" / b.skill).exists())
    )
    if there != b.sha256 and not behind:
        yield Problem("skill", f"skills/{b.skill} does not match its SHA-256 in the ledger; it was changed or removed")

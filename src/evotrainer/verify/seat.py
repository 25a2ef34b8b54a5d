"""What was asked of a seat and what was taken of its answers, computed again from the raw text."""

from __future__ import annotations

from collections.abc import Iterator

from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.seat import read_answer
from evotrainer.verify.report import Problem, Record


def asked(record: Record, event: Event) -> Iterator[Problem]:
    """Its key is its request's."""
    if event.body.key != event.body.request.key:
        yield Problem("seat", f"{event.id}: key {event.body.key[:16]} recorded, {event.body.request.key[:16]} computed")


def answered(record: Record, event: Event) -> Iterator[Problem]:
    """It belongs to a request, and the raw answer reads as recorded. What the run's rules refused, or a cap, is told by
    the ledger alone."""
    body = event.body
    request = next((e.body for e in record.events if e.id == keys.request_of(event.id)), None)
    if request is None:
        if body.stage != "cap" or body.proposal is not None or body.key:
            yield Problem("seat", f"{event.id}: an answer that nobody was asked for")
        return
    if body.key != request.key:
        yield Problem("seat", f"{event.id}: it answers another request than {keys.request_of(event.id)}")
    if body.stage == "carrier":
        return
    proposal, problem = read_answer(body.raw, request.request)
    if proposal != body.proposal:
        yield Problem("seat", f"{event.id}: the raw answer reads as another proposal than the recorded one")
    if (body.stage == "schema" or problem) and bool(problem) != bool(body.problem):
        yield Problem("seat", f"{event.id}: {body.problem or 'taken'!r} recorded, {problem or 'valid'!r} computed")

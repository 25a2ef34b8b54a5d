"""What a reader was asked, what was taken of its answers and what was concluded, computed again: every question from
the stored rollouts, every quote in them, every conclusion from the answers."""

from __future__ import annotations

from collections.abc import Iterator

from evotrainer.errors import EvoTrainerError
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.events import ReaderAnswered, ReaderAsked, ReaderOpened
from evotrainer.records.reader import question_on, read_verdict
from evotrainer.records.rollout import Rollout
from evotrainer.rules.learned import explained_places, explaining
from evotrainer.rules.reader import conclude
from evotrainer.verify.report import Problem, Record


def opened(record: Record, event: Event) -> Iterator[Problem]:
    """It names search rollouts of trainings of its branch that had finished, each once."""
    body: ReaderOpened = event.body
    finished = {e.body.trial: e.body.branch for e in record.before(event, "finished")}
    for trial in body.trials:
        if finished.get(trial) != body.branch:
            yield Problem("reader", f"{event.id}: {trial} is no finished training of {body.branch}")
            return
    named = [(p.trial, p.rollout) for p in body.picks]
    if {t for t, _ in named} - {*body.trials} or len({*named}) < len(named):
        yield Problem("reader", f"{event.id}: a rollout is named twice, or is of another training")
        return
    if (found := _rollouts(record, named, event)) and isinstance(found, Problem):
        yield found
        return
    known = explained_places(record.rollouts, body.trials, explaining(record.before(event)))
    for p in body.picks:
        if p.explained != (now := known.get((p.trial, p.rollout), "")):
            difference = f"{p.explained or 'nothing'} in the ledger, {now or 'nothing'} recomputed"
            yield Problem("reader", f"{event.id}: what explains rollout {p.rollout} is {difference}")
            return


def asked(record: Record, event: Event) -> Iterator[Problem]:
    """The question is that on the stored rollout that was picked."""
    body: ReaderAsked = event.body
    if not _picked(record, body):
        yield Problem("reader", f"{event.id}: rollout {body.rollout} was not picked there")
        return
    found = _rollouts(record, [(body.trial, body.rollout)], event)
    if isinstance(found, Problem):
        yield found
        return
    record.checked["questions to a reader"] += 1
    now = question_on(found[0], body.complaint).sha256
    if now != body.question:
        difference = f"{body.question[:16]} recorded, {now[:16]} computed from rollout {body.rollout}"
        yield Problem("reader", f"{event.id}: another question was asked than the rollout gives: {difference}")


def answered(record: Record, event: Event) -> Iterator[Problem]:
    """It answers a question, and the raw answer reads as recorded: a quote stands in the stored rollout."""
    body: ReaderAnswered = event.body
    question = next((e.body for e in record.events if e.id == keys.request_of(event.id)), None)
    if question is None or question.question != body.question or question.rollout != body.rollout:
        yield Problem("reader", f"{event.id}: an answer that nobody was asked for")
        return
    if body.stage == "carrier":
        if body.verdict is not None:
            yield Problem("reader", f"{event.id}: a verdict though nobody answered")
        return
    found = _rollouts(record, [(body.trial, body.rollout)], event)
    if isinstance(found, Problem):
        yield found
        return
    verdict, problem = read_verdict(body.raw, found[0])
    record.checked["answers of a reader"] += 1
    if verdict != body.verdict:
        now = problem or (verdict and verdict.verdict)
        recorded = body.verdict.verdict if body.verdict else "none"
        yield Problem("reader", f"{event.id}: verdict {recorded} recorded, from the raw answer it is: {now}")


def concluded(record: Record, event: Event) -> Iterator[Problem]:
    """It follows from the answers before it."""
    body, at = event.body, keys.reader(event.body.branch, event.body.reading)
    before = record.before(event)
    opening = next((e.body for e in before if e.id == at), None)
    if opening is None:
        yield Problem("reader", f"{event.id}: a reading that was never opened")
        return
    now = conclude(opening, [e.body for e in before if e.kind == "reader_answered"], body.reading, body.stopped)
    excluded = {"finding": {"claim"}}  # sentences: another version may word them otherwise
    was = body.model_dump(exclude=excluded)
    if now.model_dump(exclude=excluded) != was:
        differ = [k for k, v in now.model_dump(exclude=excluded).items() if v != was[k]]
        yield Problem("reader", f"{event.id}: {', '.join(differ)} does not follow from the answers")


def _picked(record: Record, body: ReaderAsked) -> bool:
    opening = next((e.body for e in record.events if e.id == keys.reader(body.branch, body.reading)), None)
    picks = opening.picks if opening else ()
    return body.place < len(picks) and (picks[body.place].trial, picks[body.place].rollout) == (
        body.trial,
        body.rollout,
    )


def _rollouts(record: Record, places: list[tuple[str, str]], event: Event) -> list[Rollout] | Problem:
    """Stored rollouts by (trial, id), or what is wrong with them."""
    try:
        return record.rollouts.found(places)
    except EvoTrainerError as e:
        return Problem("rollouts", f"{event.id}: {e}")

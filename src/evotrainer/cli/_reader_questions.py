"""The question of a run's reader that waits for a person, a notebook or an MCP client, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evotrainer.errors import AgentError

if TYPE_CHECKING:
    from evotrainer.api import Run
    from evotrainer.records.chain import Event
    from evotrainer.records.questions import Question
    from evotrainer.records.rollout import Rollout


def waiting_question(run: Run) -> Event | None:
    """The first question of a reader (carrier queue) that has no answer yet."""
    from evotrainer.records import keys

    options, events = run.task.harness.reader, run.events()
    if options is None or options.carrier != "queue":
        return None
    done = {keys.request_of(e.id) for e in events if e.kind == "reader_answered"}
    return next((e for e in events if e.kind == "reader_asked" and e.id not in done), None)


def asked_about(run: Run, asked: Event) -> tuple[Rollout, Question]:
    """The rollout of a question, and the question as it is put."""
    from evotrainer.harness.columns.rollout_reader import RolloutReader
    from evotrainer.records.reader import question_on

    (rollout,) = RolloutReader(run.folder).found([(asked.body.trial, asked.body.rollout)])
    return rollout, question_on(rollout, asked.body.complaint)


def judge(run: Run, asked: Event, raw: str) -> tuple[str, bool]:
    """Answer a question: the key of the event that will hold it, and whether it was answered before. AgentError, and
    the run still waits, where the answer is none."""
    from evotrainer.records import keys
    from evotrainer.records.queued import answer_file, put_answer
    from evotrainer.records.reader import read_verdict

    if problem := read_verdict(raw, asked_about(run, asked)[0])[1]:
        raise AgentError(f"{problem}; correct the answer and give it again: the run still waits")
    b = asked.body
    name = keys.reader_turn(b.branch, b.reading, b.place, b.attempt)
    key, folder = keys.reader_answered(b.branch, b.reading, b.place, b.attempt), run.folder / "seat"
    return key, answer_file(folder, name).exists() or put_answer(folder, name, raw)

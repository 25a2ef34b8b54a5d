"""Answers to what a run asks by carrier `queue`, handed over in the run folder by any shell, page or machine.

A request is an event (`SeatAsked`, `ReaderAsked`). Its answer is one file, `seat/<request>.answer.json`, whole or not
there: whoever is first is taken, and the run records it in the ledger with who gave it and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from evotrainer.errors import AgentError
from evotrainer.records import keys
from evotrainer.records.answers import stamp, whoami
from evotrainer.records.chain import Event
from evotrainer.records.durable import put_first
from evotrainer.records.frozen import Frozen
from evotrainer.records.regular_file import open_regular
from evotrainer.records.seat import MOST, SeatBriefing, read_answer

HEAD = '{"raw":'
"""How a `QueuedAnswer` begins."""


class QueuedAnswer(Frozen):
    """An answer as it was handed over."""

    raw: str
    by: str = ""
    """Who gave it; empty: a file that says nothing of itself was put there."""
    at: str = ""
    """UTC, ISO 8601."""


def answer_file(folder: Path, name: str) -> Path:
    """Where the answer to a request is put. `folder`: RUN/seat."""
    return folder / f"{name}.answer.json"


def read_queued(folder: Path, name: str) -> QueuedAnswer | None:
    """The answer that was put there; None: none yet."""
    path = answer_file(folder, name)
    if not path.is_file():
        return None
    with open_regular(path) as f:
        text = f.read(8 * MOST).decode("utf-8", errors="replace")
    try:
        return QueuedAnswer.model_validate_json(text)
    except ValidationError:
        if text.startswith(HEAD) or HEAD.startswith(text):  # not whole yet, where a disk has no links
            return None
        return QueuedAnswer(raw=text[: MOST + 1])  # a bare answer


def put_answer(folder: Path, name: str, raw: str, by: str = "") -> bool:
    """Answer a request, as user@host where `by` is empty; was the same answer there before? AgentError where another
    one was: the first counts."""
    given = QueuedAnswer(raw=raw[: MOST + 1], by=by or whoami(), at=stamp())
    data = given.model_dump_json().encode("utf-8", "replace")
    first = put_first(answer_file(folder, name), data, lambda: read_queued(folder, name))
    if first is not None and first.raw.strip() != raw.strip():
        who = f" by {first.by} at {first.at}" if first.by else ""
        raise AgentError(f"{name} is answered already{who}; the first answer counts")
    return first is not None


def open_request(events: Sequence[Event]) -> Event | None:
    """The `SeatAsked` that has no answer in the ledger yet; None: nobody is asked."""
    done = {keys.request_of(e.id) for e in events if e.kind == "answered"}
    return next((e for e in reversed(events) if e.kind == "asked" and e.id not in done), None)


def is_answered(folder: Path, asked: Event) -> bool:
    """Does an answer lie there which the run has not taken yet? `folder`: of the run."""
    return answer_file(folder / "seat", _turn(asked)).is_file()


def checked(raw: str, request: SeatBriefing) -> None:
    """AgentError with what is wrong with a seat's answer."""
    if problem := read_answer(raw, request)[1]:
        raise AgentError(f"{problem}; correct the answer and propose again: the run still waits")


def propose(
    folder: Path, events: Sequence[Event], raw: str, *, to: str = "", by: str = "", idle: str = ""
) -> tuple[str, bool]:
    """Answer the seat's request that waits: the one way for a command, a page and an MCP client. The key of the event
    that will tell what came of it, and whether it was given before. AgentError where nobody is asked, or with what is
    wrong: the run still waits then.

    `to`: the request that is meant, by its id or by the key of its answer. Without it a text that the run has had is a
    retry of that answer, not one to what is asked now. `by`: who answers. `idle`: what to do where nobody is asked.
    """
    asked = open_request(events)
    meant, now = keys.request_of(to), asked.id if asked else ""
    if meant != now or not meant:
        had = {e.id: e.body for e in events if e.kind == "answered" and e.body.raw.strip()}
        for key, a in reversed(had.items()):
            if a.raw.strip() == raw.strip() and meant in ("", keys.request_of(key)):
                if a.problem:
                    other = f", or add --to {now} to answer that with it" if now else ""
                    past = f"it was refused as the answer to {keys.request_of(key)}: {a.problem}"
                    raise AgentError(f"{past}; correct it{other}")
                return key, True
    if meant and meant != now:
        raise AgentError(f"{folder} waits for no answer to {meant}; {f'{now} waits' if now else 'none waits'}")
    if asked is None:
        raise AgentError(f"{folder} asks nobody now; {idle or f'`evotrainer seat {folder}` shows when it does'}")
    body = asked.body
    if body.carrier != "queue":
        raise AgentError(f"{folder} asks by carrier {body.carrier}, not queue; nobody reads an answer given here")
    checked(raw, body.request)
    again = put_answer(folder / "seat", _turn(asked), raw, by)
    return keys.answered(body.round, body.step, body.attempt), again


def _turn(asked: Event) -> str:
    return keys.seat_turn(asked.body.round, asked.body.step, asked.body.attempt)

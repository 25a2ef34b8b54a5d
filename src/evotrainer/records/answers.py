"""A human's answer at a gate, handed over in the run folder by any shell, page or machine that shares it.

A question is an event (`GateAsked`). Its answer is one file, `gates/<question>.json`, whole or not there: whoever is
first is taken, and the run records it in the ledger with who gave it and when.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from evotrainer.errors import AgentError, ConfigError
from evotrainer.records.chain import Event
from evotrainer.records.clock import unix_time
from evotrainer.records.durable import put_first
from evotrainer.records.frozen import Frozen
from evotrainer.records.regular_file import read_text

FOLDER = "gates"
MOST = 4000
"""Letters of a human's words."""
Choice = Literal["APPROVE", "REVISE", "ABORT"]
CHOICES: dict[str, Choice] = {"approve": "APPROVE", "revise": "REVISE", "abort": "ABORT"}


class GateAnswer(Frozen):
    """The answer to one question."""

    to: str
    """Id of the question."""
    answer: Choice
    words: str = Field("", max_length=MOST)
    by: str = Field(max_length=200)
    at: str = Field(max_length=40)
    """UTC, ISO 8601."""


def open_question(events: Sequence[Event]) -> Event | None:
    """The `GateAsked` that has no answer in the ledger yet; None: nobody is asked at a gate."""
    answered = {e.body.to for e in events if e.kind == "gate"}
    return next((e for e in reversed(events) if e.kind == "gate_asked" and e.id not in answered), None)


def waited_s(events: Sequence[Event], since: float, now: float) -> float:
    """Seconds between `since` and `now` (Unix) in which a question was open."""
    total = 0.0
    answered = {e.body.to: _unix(e) for e in events if e.kind == "gate"}
    for e in events:
        if e.kind == "gate_asked":
            total += max(0.0, min(now, answered.get(e.id, now)) - max(since, _unix(e)))
    return total


def _unix(event: Event) -> float:
    return datetime.fromisoformat(event.time).timestamp()


def whoami() -> str:
    """user@host of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def stamp() -> str:
    """Now, UTC, ISO 8601."""
    return datetime.fromtimestamp(unix_time(), UTC).isoformat(timespec="seconds")


def give_answer(
    folder: Path, events: Sequence[Event], answer: str, words: str = "", *, by: str = "", to: str = ""
) -> GateAnswer:
    """Answer the question that a run waits with: the one way for a command, a page and a terminal.

    `answer`: approve, revise (with words) or abort. `by`: who; empty: user@host. `to`: id of the question that is
    meant, where it must be no other. Raises ConfigError for what is no answer; AgentError, and nothing is written,
    where nobody is asked, another question is, or this one was answered already.
    """
    choice = CHOICES.get(answer.strip().lower())
    if choice is None:
        raise ConfigError(f"{answer!r} is no answer; give approve, revise or abort")
    if choice == "REVISE" and not words.strip():
        raise ConfigError('revise needs words: what should change; e.g. revise "no rewards"')
    asked = open_question(events)
    if to and (asked is None or asked.id != to):
        now = f"{asked.id} waits" if asked else "none waits"
        raise AgentError(f"{folder} waits for no answer to {to}; {now}")
    if asked is None:
        raise AgentError(f"{folder} asks nobody now; `evotrainer status {folder}` says when it does")
    try:
        given = GateAnswer(
            to=asked.id,
            answer=choice,
            words=_plain(words),
            by=_plain(by) or whoami(),
            at=stamp(),
        )
    except ValidationError:
        raise ConfigError(f"an answer has at most {MOST:,} letters, and a name at most 200; shorten it") from None
    file, data = answer_file(folder, asked.id), given.model_dump_json().encode()
    if (first := put_first(file, data, lambda: read_answer(folder, asked.id))) is not None:
        raise AgentError(
            f"{asked.id} was answered already: {first.answer.lower()} by {first.by} at {first.at}; the first counts"
        )
    return given


def _plain(text: str) -> str:
    """A text that JSON can hold: a shell may pass bytes that are none."""
    return text.encode("utf-8", errors="replace").decode().strip()


def read_answer(folder: Path, question: str) -> GateAnswer | None:
    """The answer to a question; None where there is none that can be read."""
    with contextlib.suppress(OSError, ValueError):  # pydantic's errors are ValueErrors
        given = GateAnswer.model_validate_json(read_text(answer_file(folder, question)))
        return given if given.to == question else None
    return None


def answer_file(folder: Path, question: str) -> Path:
    """Where the answer to a question is put."""
    return folder / FOLDER / f"{question.replace('/', '-')}.json"

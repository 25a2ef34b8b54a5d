"""The run waits: `evotrainer seat RUN` shows the request, `evotrainer propose RUN FILE` answers it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from evotrainer.agents.carriers import CarrierError, Question, Reply, SeatTurn
from evotrainer.records.questions import CarrierOptions
from evotrainer.records.regular_file import open_regular
from evotrainer.records.seat import MOST, SeatBriefing

EVERY_S = 0.1


class QueueCarrier:
    """Waits for a file; a person, a notebook or a detached agent puts it there."""

    name = "queue"

    def ask(self, request: SeatBriefing, turn: SeatTurn) -> Reply:
        return self._answered(turn)

    def put(self, question: Question, turn: SeatTurn) -> Reply:
        return self._answered(turn)

    def _answered(self, turn: SeatTurn) -> Reply:
        path, end = answer_file(turn.folder, turn.name), time.monotonic() + turn.timeout_s
        while time.monotonic() < end:
            if path.is_file():
                with open_regular(path) as f:
                    return Reply(f.read(4 * MOST + 4).decode("utf-8", errors="replace")[: MOST + 1])
            time.sleep(EVERY_S)
        raise CarrierError(f"nobody answered within {turn.timeout_s:g} s; raise run.agent_options.timeout_s")


def answer_file(folder: Path, name: str) -> Path:
    """Where the answer to a request is put."""
    return folder / f"{name}.answer.json"


def put_answer(folder: Path, name: str, raw: str) -> None:
    """Answer a request: the file is whole or not there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = answer_file(folder, name)
    part = path.with_name(path.name + ".part")
    part.write_text(raw, encoding="utf-8")
    os.replace(part, path)


def make(options: CarrierOptions, secrets: Mapping[str, str], reader: bool = False) -> QueueCarrier:
    """Whoever answers the run."""
    return QueueCarrier()

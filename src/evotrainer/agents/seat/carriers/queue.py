"""The run waits: `evotrainer seat RUN` shows the request; `evotrainer propose RUN FILE` or the page answers it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from evotrainer.agents.carriers import CarrierError, Question, Reply, SeatTurn
from evotrainer.records.questions import CarrierOptions
from evotrainer.records.queued import read_queued
from evotrainer.records.seat import SeatBriefing

EVERY_S = 0.1


class QueueCarrier:
    """Waits for a file; a person, a notebook or a detached agent puts it there."""

    name = "queue"

    def ask(self, request: SeatBriefing, turn: SeatTurn) -> Reply:
        return self._answered(turn)

    def put(self, question: Question, turn: SeatTurn) -> Reply:
        return self._answered(turn)

    def _answered(self, turn: SeatTurn) -> Reply:
        end = time.monotonic() + turn.timeout_s
        while time.monotonic() < end:
            if (given := read_queued(turn.folder, turn.name)) is not None:
                return Reply(given.raw, by=given.by, at=given.at)
            time.sleep(EVERY_S)
        raise CarrierError(f"nobody answered within {turn.timeout_s:g} s; raise run.agent_options.timeout_s")


def make(options: CarrierOptions, secrets: Mapping[str, str], reader: bool = False) -> QueueCarrier:
    """Whoever answers the run."""
    return QueueCarrier()

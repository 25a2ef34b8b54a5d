"""Plays the recorded answers of a run again: the seat's to the request of the same round, step and attempt, a reader's
to the same question."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from evotrainer.agents.carriers import CarrierError, Question, Reply, SeatTurn
from evotrainer.errors import AgentError, StoreError
from evotrainer.records import keys
from evotrainer.records.events import ReaderAnswered, SeatAnswered
from evotrainer.records.ledger import Ledger
from evotrainer.records.questions import CarrierOptions
from evotrainer.records.seat import SeatBriefing


class ReplayCarrier:
    """Answers from the ledger of an earlier run; a request of the seat that asks something else there ends the run.

    `reader`: the reader's answers, not the seat's.
    """

    name = "replay"

    def __init__(self, run: str, reader: bool = False) -> None:
        path = Path(run).expanduser() / "ledger.db"
        if not path.is_file():
            raise StoreError(f"run.agent_options.run: no run in {run!r} (no ledger.db); give the folder of a run")
        self.run = run
        self.known: dict[str, tuple[SeatBriefing, SeatAnswered]] = {}
        self.read: dict[str, ReaderAnswered] = {}
        with contextlib.closing(Ledger.open(path, readonly=True)) as ledger:
            for e in ledger.events("answered"):
                if asked := ledger.get(keys.request_of(e.id)):
                    self.known[e.id] = asked.body.request, e.body
            self.read = {e.body.question: e.body for e in ledger.events("reader_answered")}
        if not (self.read if reader else self.known):
            who = "a reader; give a run with [harness.reader]" if reader else "a seat; give a run of agent seat"
            raise StoreError(f"run.agent_options.run: {run!r} holds no answer of {who}")

    def ask(self, request: SeatBriefing, turn: SeatTurn) -> Reply:
        if turn.key not in self.known:
            raise AgentError(f"replay of {self.run}: it has no {turn.name}")
        was, a = self.known[turn.key]
        if difference := was.differs(request):
            raise AgentError(f"replay of {self.run}: {turn.name} was not asked so then; {difference}")
        return played(a)

    def put(self, question: Question, turn: SeatTurn) -> Reply:
        if (a := self.read.get(question.sha256)) is None:
            raise CarrierError(f"replay of {self.run}: its reader was not asked about this rollout")
        return played(a)


def played(a: SeatAnswered | ReaderAnswered) -> Reply:
    """A recorded answer as it came."""
    gone = a.problem if a.stage == "carrier" else ""
    return Reply(a.raw, a.model, a.input_tokens, a.output_tokens, a.dollars, a.wall_s, gone)


def make(options: CarrierOptions, secrets: Mapping[str, str], reader: bool = False) -> ReplayCarrier:
    """The recorded answers of a run, the seat's or its reader's."""
    return ReplayCarrier(getattr(options, "run", ""), reader)

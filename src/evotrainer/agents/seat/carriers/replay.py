"""Plays the recorded answers of a run again, each to the request of the same round, step and attempt."""

from __future__ import annotations

import contextlib
from pathlib import Path

from evotrainer.agents.seat.carriers.base import Reply, SeatTurn
from evotrainer.errors import AgentError, StoreError
from evotrainer.records import keys
from evotrainer.records.events import SeatAnswered
from evotrainer.records.ledger import Ledger
from evotrainer.records.seat import SeatBriefing


class ReplayCarrier:
    """Answers from the ledger of an earlier run; a request that asks something else there ends the run."""

    name = "replay"

    def __init__(self, run: str) -> None:
        path = Path(run).expanduser() / "ledger.db"
        if not path.is_file():
            raise StoreError(f"run.agent_options.run: no run in {run!r} (no ledger.db); give the folder of a run")
        self.run = run
        self.known: dict[str, tuple[SeatBriefing, SeatAnswered]] = {}
        with contextlib.closing(Ledger.open(path, readonly=True)) as ledger:
            for e in ledger.events("answered"):
                if asked := ledger.get(keys.request_of(e.id)):
                    self.known[e.id] = asked.body.request, e.body
        if not self.known:
            raise StoreError(f"run.agent_options.run: {run!r} holds no answer of a seat; give a run of agent seat")

    def ask(self, request: SeatBriefing, turn: SeatTurn) -> Reply:
        if turn.key not in self.known:
            raise AgentError(f"replay of {self.run}: it has no {turn.name}")
        was, a = self.known[turn.key]
        if told := was.differs(request):
            raise AgentError(f"replay of {self.run}: {turn.name} was not asked so then; {told}")
        gone = a.problem if a.stage == "carrier" else ""
        return Reply(a.raw, a.model, a.input_tokens, a.output_tokens, a.dollars, a.wall_s, gone)

"""Plays the recorded answers of a run again. A request is found by its hash and its occurrence: by the hash alone
repeated requests would all get the last answer."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from pathlib import Path

from evotrainer.agents.seat.carriers.base import Reply, SeatTurn
from evotrainer.errors import AgentError, StoreError
from evotrainer.records import keys
from evotrainer.records.events import SeatAnswered
from evotrainer.records.ledger import Ledger
from evotrainer.records.seat import VOLATILE, SeatBriefing


class ReplayCarrier:
    """Answers from the ledger of an earlier run; a request that is not in it ends the run."""

    name = "replay"

    def __init__(self, run: str) -> None:
        path = Path(run).expanduser() / "ledger.db"
        if not path.is_file():
            raise StoreError(f"run.agent_options.run: no run in {run!r} (no ledger.db); give the folder of a run")
        self.run = run
        self.asked: dict[str, SeatBriefing] = {}
        self.answers: dict[str, list[SeatAnswered]] = defaultdict(list)
        with contextlib.closing(Ledger.open(path, readonly=True)) as ledger:
            for e in ledger.events("answered"):
                if asked := ledger.get(keys.request_of(e.id)):
                    self.asked[e.id] = asked.body.request
                    self.answers[e.body.key].append(e.body)
        if not self.asked:
            raise StoreError(f"run.agent_options.run: {run!r} holds no answer of a seat; give a run of agent seat")

    def ask(self, request: SeatBriefing, turn: SeatTurn) -> Reply:
        known = self.answers.get(request.key) or self.answers.get(self._before(request), [])
        if turn.occurrence >= len(known):
            raise AgentError(f"replay of {self.run}: {turn.name} was not asked so then; {self._difference(request)}")
        a = known[turn.occurrence]
        gone = a.problem if a.stage == "carrier" else ""
        return Reply(a.raw, a.model, a.input_tokens, a.output_tokens, a.dollars, a.wall_s, gone)

    def _before(self, request: SeatBriefing) -> str:
        """The key of the recorded request that is the same but for factors that later versions added."""
        place = (request.round, request.step, request.number)
        for r in self.asked.values():
            there = {name: offer for name, offer in request.factors.items() if name in r.factors}
            if (r.round, r.step, r.number) == place and request.model_copy(update={"factors": there}).key == r.key:
                return r.key
        return ""

    def _difference(self, request: SeatBriefing) -> str:
        """The first field in which the nearest recorded request differs."""
        place = (request.round, request.step, request.number)
        near = [r for r in self.asked.values() if (r.round, r.step, r.number) == place]
        if not near:
            return f"it has no {request.step} {request.number} of round {request.round}"
        was, now = near[0].model_dump(mode="json"), request.model_dump(mode="json")
        for field in (f for f in was if f not in VOLATILE and was[f] != now[f]):
            if field != "text":
                return f"{field} was {json.dumps(was[field])[:200]}, is {json.dumps(now[field])[:200]}"
            for a, b in zip(was["text"].splitlines(), now["text"].splitlines(), strict=False):
                if a != b:
                    return f"the text said {a[:200]!r}, says {b[:200]!r}"
            return "the text is of another length"
        return "it was asked less often"

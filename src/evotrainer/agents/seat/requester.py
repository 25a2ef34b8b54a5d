"""Asks a seat one request again as long as its answer is refused, within caps; each question and answer is an event."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from evotrainer.agents.carriers import Carrier, CarrierError, Reply, SeatTurn
from evotrainer.agents.seat.options import SeatOptions
from evotrainer.agents.secrets import recordable, redacted
from evotrainer.projections.seat import SeatSpend
from evotrainer.records import keys
from evotrainer.records.events import SeatAnswered, SeatAsked
from evotrainer.records.seat import MOST, STAGES, SeatBriefing, SeatProposal, SeatTrial, read_answer


class SeatLog(Protocol):
    """What a seat may know of its run: its own events, and what the run's rules say against a trial."""

    folder: Path
    hidden: tuple[Path, ...]

    def asked(self, key: str, make: Callable[[], SeatAsked]) -> SeatAsked:
        """The recorded request of this key, made and recorded first where there is none."""
        ...

    def answered(self, key: str, make: Callable[[], SeatAnswered]) -> SeatAnswered:
        """The same of an answer."""
        ...

    def past(self) -> Sequence[SeatAnswered]:
        """All answers so far."""
        ...

    def refusal(self, request: SeatBriefing, trial: SeatTrial) -> str:
        """Why the run would not train this; empty where it would."""
        ...

    def note(self, text: str) -> None:
        """Tell whoever watches the run."""
        ...


class Requester:
    """Sends requests of one run to one carrier."""

    def __init__(self, carrier: Carrier, options: SeatOptions, secrets: dict[str, str], log: SeatLog) -> None:
        self.carrier, self.options, self.secrets, self.log = carrier, options, secrets, log
        self._noted: set[str] = set()

    def ask(self, request: SeatBriefing) -> SeatProposal | None:
        """A valid answer, or None where the statistical agent's own proposal takes its place."""
        step = request.place
        for attempt in range(self.options.retries + 1):
            key = keys.answered(request.round, step, attempt)
            got = self.log.answered(key, lambda r=request, a=attempt: self._once(r, step, a))  # type: ignore[misc]
            if not got.problem:
                return got.proposal
            self.log.note(f"seat ({self.carrier.name}): {got.problem}")
            if got.fallback:
                break
            request = request.model_copy(update={"complaint": got.problem})
        return None

    def _once(self, request: SeatBriefing, step: str, attempt: int) -> SeatAnswered:
        past = self.log.past()
        where = {"round": request.round, "step": step, "attempt": attempt, "carrier": self.carrier.name}
        if cap := self._cap(past):
            return SeatAnswered.model_validate({**where, "stage": "cap", "problem": cap, "fallback": True})
        asked = self.log.asked(
            keys.asked(request.round, step, attempt),
            lambda: SeatAsked.model_validate({**where, "request": request, "key": request.key}),
        )
        turn = SeatTurn(
            name=keys.seat_turn(request.round, step, attempt),
            folder=self.log.folder,
            key=keys.answered(request.round, step, attempt),
            timeout_s=self.options.timeout_s,
            hidden=self.log.hidden,
        )
        began = time.monotonic()
        if self.carrier.name == "queue":
            self.log.note(f"seat: {turn.name} waits for an answer: `evotrainer seat {self.log.folder.parent}` shows it")
        try:
            reply = self.carrier.ask(asked.request, turn)
        except CarrierError as e:
            reply = Reply("", problem=str(e))
        took = time.monotonic() - began if reply.wall_s is None else reply.wall_s
        reply = recordable(reply, self.secrets)
        self._note_usage(reply)
        reply = replace(reply, raw=reply.raw[: MOST + 1], wall_s=round(took, 3))
        proposal, stage, problem = self._read(reply.raw, reply, asked.request, step, past)
        return SeatAnswered(
            **where,
            key=asked.key,
            **reply.recorded,
            proposal=proposal,
            stage=stage,
            problem=redacted(problem, self.secrets),
            fallback=bool(problem) and (stage in ("carrier", "repeated") or attempt >= self.options.retries),
        )

    def _read(
        self, raw: str, reply: Reply, request: SeatBriefing, step: str, past: Sequence[SeatAnswered]
    ) -> tuple[SeatProposal | None, STAGES, str]:
        """(the answer as far as it can be read, where it failed, why)."""
        if reply.problem:
            return None, "carrier", reply.problem
        proposal, problem = read_answer(raw, request)
        if proposal is None:  # what is cut off once is cut off again: it is not asked and paid for several times
            return None, "carrier" if reply.cut else "schema", reply.cut or problem
        for i, t in enumerate(proposal.trials):
            if problem := self.log.refusal(request, t):
                return proposal, "rules", f"trials.{i}: {problem}"
        taken = [a for a in past if not a.problem and a.step.startswith(request.step)]
        last = taken[-1].proposal if taken else None
        if last is not None and proposal.same(last):
            return proposal, "repeated", f"the same answer as to {taken[-1].step}, word for word in what it changes"
        return proposal, "", ""

    def _note_usage(self, reply: Reply) -> None:
        """Tell once what is estimated, and which cap never ends this run since nothing is told of what it caps."""
        o, tokens = self.options, reply.input_tokens + reply.output_tokens
        notice = "tells no tokens: they are estimated as bytes / 4" if reply.estimated else ""
        capped = (("tokens", o.tokens, tokens), ("dollars", o.dollars, reply.dollars))
        idle = [name for name, most, got in capped if most and not got]
        if idle and not reply.problem:
            notice = (
                f"tells no {' and no '.join(idle)}: that cap ends nothing, run.agent_options.requests and wall_s do"
            )
        if notice and notice not in self._noted:
            self._noted.add(notice)
            self.log.note(f"seat ({self.carrier.name}): {self.carrier.name} {notice}")

    def _cap(self, past: Sequence[SeatAnswered]) -> str:
        """Which cap is reached; empty: none."""
        spent, o = SeatSpend.of(past), self.options
        for name, used, most in (
            ("requests", spent.requests, o.requests),
            ("tokens", spent.tokens, o.tokens),
            ("dollars", spent.dollars, o.dollars),
            ("wall_s", spent.wall_s, o.wall_s),
        ):
            if most is not None and used >= most:
                return f"run.agent_options.{name} = {most:g} is used up ({used:g}); nobody is asked any more"
        return ""

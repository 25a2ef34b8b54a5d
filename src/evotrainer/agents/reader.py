"""A reader's questions through a carrier of the seat, of a run and of an audit alike."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from evotrainer.agents.carriers import CARRIERS, Carrier, CarrierError, Reply, SeatTurn
from evotrainer.agents.secrets import recordable, secrets_of
from evotrainer.errors import ConfigError, StoreError
from evotrainer.records.questions import CarrierOptions, Question
from evotrainer.records.reader import read_verdict
from evotrainer.records.seat import MOST

if TYPE_CHECKING:
    from evotrainer.records.reader import ReaderVerdict
    from evotrainer.records.rollout import Rollout

SILENT = 3
"""Questions in a row without any answer after which nobody is asked any more."""
REFUSED = 8
"""Rollouts without a valid answer, and none with one, after which nobody is asked any more."""


class ReaderCarrier:
    """One carrier for a reader's questions; safe to share between threads. `place`: where its options are set
    (`harness.reader.`, `--reader `), for messages. ConfigError where nobody can be asked."""

    def __init__(self, options: CarrierOptions, place: str) -> None:
        self.place = place
        try:
            self.secrets = secrets_of(options)
            name = getattr(options, "carrier", "llm" if options.model else "command")
            self.carrier: Carrier = CARRIERS[name](options, self.secrets, True)
        except (ConfigError, StoreError) as e:
            raise ConfigError(self._here(str(e))) from None

    def put(self, question: Question, turn: SeatTurn) -> Reply:
        """The answer, at most one character longer than what is read of it, without secrets; its `problem` where nobody
        answered. `wall_s` is always set."""
        began = time.monotonic()
        try:
            reply = self.carrier.put(question, turn)
        except CarrierError as e:
            reply = Reply("", problem=str(e))
        took = time.monotonic() - began if reply.wall_s is None else reply.wall_s
        reply = recordable(replace(reply, raw=reply.raw[: MOST + 1]), self.secrets)
        return replace(reply, wall_s=round(took, 3), problem=self._here(reply.problem), cut=self._here(reply.cut))

    def _here(self, text: str) -> str:
        """A message of the seat's as one about this reader."""
        return text.replace("run.agent_options.", self.place).replace("run.agent_options", self.place.rstrip(". "))


def verdict_of(reply: Reply, rollout: Rollout) -> tuple[ReaderVerdict | None, str, bool]:
    """(verdict, why there is none, is it worth asking again?) of an answer."""
    if reply.problem:
        return None, reply.problem, False
    verdict, problem = read_verdict(reply.raw, rollout)
    if verdict is None and reply.cut:  # and would be again
        return None, reply.cut, False
    return verdict, problem, verdict is None


def used_up(options: CarrierOptions, place: str, tokens: int, dollars: float) -> str:
    """Which cap is reached; empty: none."""
    for name, used, most in (("tokens", tokens, options.tokens), ("dollars", dollars, options.dollars)):
        if most is not None and used >= most:
            return f"{place}{name}={most:g} is used up ({used:g})"
    return ""

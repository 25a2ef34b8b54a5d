"""One small request to a seat, outside of any run: does it answer, and what does that cost?"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evotrainer.agents import make_agent
from evotrainer.agents.seat.agent import SeatAgent
from evotrainer.agents.seat.carriers.base import CarrierError, SeatTurn
from evotrainer.agents.seat.carriers.llm_output import OUTPUTS
from evotrainer.agents.seat.options import SeatOptions
from evotrainer.agents.seat.secrets import struck
from evotrainer.errors import AgentError
from evotrainer.records.seat import FactorOffer, SeatBriefing, read_answer

REQUEST = SeatBriefing(
    run="doctor",
    round=1,
    step="search",
    number=0,
    places=1,
    champion="b0",
    factors={"lr": FactorOffer(now=1e-4, legal="number > 0"), "steps": FactorOffer(now=30, legal="integer >= 1")},
    at_once=1,
    at_most=1,
    text="# A request to try the connection\n\nReward still rises at the last step. Name one training.",
)


@dataclass(frozen=True)
class Tried:
    """What came of one request."""

    who: str
    problem: str
    """Why there was no valid answer; empty: there was one."""
    wall_s: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    model: str = ""
    output: str = ""
    """The output mode that was asked for, of carrier llm."""

    @property
    def price(self) -> tuple[float, int]:
        """By which two answers are compared: dollars where prices are set, then tokens of request and answer."""
        return self.dollars, self.input_tokens + self.output_tokens

    @property
    def told(self) -> str:
        tokens = f"{self.input_tokens} + {self.output_tokens} tokens"
        money = f", {self.dollars:.4f} dollars" if self.dollars else ""
        return f"{self.wall_s:.1f} s ({tokens}{money}{f', {self.model}' if self.model else ''})"


def try_seat(options: Mapping[str, Any]) -> str:
    """What came of it, in one line; AgentError or ConfigError where no valid answer came."""
    tried = _try(options)
    if tried.problem:
        raise AgentError(f"{tried.who} answers, but {tried.problem}; try another model, command or output mode")
    return f"{tried.who} gives a valid answer in {tried.told}"


def try_outputs(options: Mapping[str, Any]) -> Iterator[Tried]:
    """What comes of each output mode of carrier llm, plain text first: CarrierError where not even that is answered."""
    wanted = SeatOptions.model_validate(dict(options))
    for output in OUTPUTS[wanted.protocol]:
        try:
            yield _try({**options, "output": output})
        except CarrierError as e:
            if output == "text":
                raise
            yield Tried("llm", str(e), output=output)


def _try(options: Mapping[str, Any]) -> Tried:
    agent = make_agent("seat", 0, options)
    assert isinstance(agent, SeatAgent)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            reply = agent.carrier.ask(REQUEST, SeatTurn("doctor", Path(folder), "doctor", agent.options.timeout_s))
        except CarrierError as e:
            raise CarrierError(struck(str(e), agent.secrets)) from None
    return Tried(
        agent.carrier.name,
        read_answer(reply.raw, REQUEST)[1],
        time.monotonic() - began,
        reply.input_tokens,
        reply.output_tokens,
        reply.dollars,
        reply.model,
        agent.options.output_mode if agent.carrier.name == "llm" else "",
    )

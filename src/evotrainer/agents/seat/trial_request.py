"""One small request to a seat, outside of any run: does it answer, and what does that cost?"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evotrainer.agents import make_agent
from evotrainer.agents.carriers import CarrierError, SeatTurn
from evotrainer.agents.seat.agent import SeatAgent
from evotrainer.agents.seat.carriers.llm_output import OUTPUTS
from evotrainer.agents.secrets import recordable, redacted
from evotrainer.errors import AgentError
from evotrainer.records.seat import FactorOffer, SeatBriefing, SeatProposal, objects_in, read_answer

REQUEST = SeatBriefing(
    run="doctor",
    round=1,
    step="search",
    number=0,
    places=1,
    champion="b0",
    factors={"lr": FactorOffer(now=1e-4, legal="number > 0"), "steps": FactorOffer(now=30, legal="integer >= 1")},
    at_most=1,
    text="# A request to try the connection\n\nReward still rises at the last step. Name one training.",
)


@dataclass(frozen=True)
class SeatCheck:
    """What came of one request."""

    respondent: str
    problem: str
    """Why there was no valid answer; empty: there was one."""
    mismatch: str = ""
    """What the made-up request says against an answer in the format, which one of a run may take; empty: nothing."""
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
    def line(self) -> str:
        """What came of a request that was answered in the format."""
        if not self.mismatch:
            return f"{self.respondent} gives a valid answer in {self.summary}"
        return (
            f"{self.respondent} speaks the format, but did not answer this request, which is made up and has the "
            f"factors {' and '.join(REQUEST.factors)}: {self.mismatch}; a run asks with those of its task; "
            f"{self.summary}"
        )

    @property
    def summary(self) -> str:
        tokens = f"{self.input_tokens} + {self.output_tokens} tokens"
        money = f", {self.dollars:.4f} dollars" if self.dollars else ""
        return f"{self.wall_s:.1f} s ({tokens}{money}{f', {self.model}' if self.model else ''})"


def seat_of(options: Mapping[str, Any]) -> SeatAgent:
    """The agent that a run with these options would have; ConfigError for options that it does not take."""
    agent = make_agent("seat", 0, options)
    assert isinstance(agent, SeatAgent)
    return agent


def try_seat(options: Mapping[str, Any]) -> SeatCheck:
    """What came of it; AgentError or ConfigError where no valid answer came."""
    tried = _try(options)
    if tried.problem:
        asked = f"a made-up request with the factors {' and '.join(REQUEST.factors)}"
        raise AgentError(
            f"{tried.respondent} answers {asked}, but {tried.problem}; try another model, command or output mode"
        )
    return tried


def try_outputs(options: Mapping[str, Any]) -> Iterator[SeatCheck]:
    """What comes of each output mode of carrier llm, plain text first: CarrierError where not even that is answered."""
    for output in OUTPUTS[seat_of(options).options.protocol]:
        try:
            yield _try({**options, "output": output})
        except CarrierError as e:
            if output == "text":
                raise
            yield SeatCheck("llm", str(e), output=output)


def _try(options: Mapping[str, Any]) -> SeatCheck:
    agent = seat_of(options)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            reply = agent.carrier.ask(REQUEST, SeatTurn("doctor", Path(folder), "doctor", agent.options.timeout_s))
            problem = read_answer(reply.raw, REQUEST)[1]
            if why := reply.problem or (problem and reply.cut):
                raise CarrierError(why)
        except CarrierError as e:
            raise CarrierError(redacted(str(e), agent.secrets)) from None
    reply = recordable(reply, agent.secrets)
    elsewhere = bool(problem) and in_the_format(reply.raw)
    return SeatCheck(
        agent.carrier.name,
        "" if elsewhere else problem,
        problem if elsewhere else "",
        time.monotonic() - began,
        reply.input_tokens,
        reply.output_tokens,
        reply.dollars,
        reply.model,
        agent.options.output_mode if agent.carrier.name == "llm" else "",
    )


def in_the_format(raw: str) -> bool:
    """Would a request take the answer that offers the factors it names, as a run of some task may?"""
    try:
        answers = [SeatProposal.model_validate(x) for x in objects_in(raw, SeatProposal.model_fields)]
    except ValueError:
        return False
    named = {f for p in answers for t in p.trials for f in t.changes} - REQUEST.factors.keys()
    offers = {**REQUEST.factors, **{f: FactorOffer(now=None, legal="") for f in sorted(named)}}
    wide = REQUEST.model_copy(update={"factors": offers, "at_most": max(len(offers), REQUEST.at_most)})
    return bool(named) and not read_answer(raw, wide)[1]

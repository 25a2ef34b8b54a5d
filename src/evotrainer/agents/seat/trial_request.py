"""One small request to a seat, outside of any run: does it answer, and what does that cost?"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evotrainer.agents import make_agent
from evotrainer.agents.seat.agent import SeatAgent
from evotrainer.agents.seat.carriers.base import CarrierError, SeatTurn
from evotrainer.agents.seat.secrets import struck
from evotrainer.errors import AgentError
from evotrainer.records.seat import FactorOffer, SeatBriefing, read_answer


def try_seat(options: Mapping[str, Any]) -> str:
    """What came of it, in one line; AgentError or ConfigError where no valid answer came."""
    agent = make_agent("seat", 0, options)
    assert isinstance(agent, SeatAgent)
    request = SeatBriefing(
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
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            reply = agent.carrier.ask(request, SeatTurn("doctor", Path(folder), 0, agent.options.timeout_s))
        except CarrierError as e:
            raise CarrierError(struck(str(e), agent.secrets)) from None
    problem = read_answer(reply.raw, request)[1]
    if problem:
        raise AgentError(f"{agent.carrier.name} answers, but {problem}; try json_mode, or another model or command")
    return (
        f"{agent.carrier.name} gives a valid answer in {time.monotonic() - began:.1f} s"
        f" ({reply.input_tokens} + {reply.output_tokens} tokens{f', {reply.model}' if reply.model else ''})"
    )

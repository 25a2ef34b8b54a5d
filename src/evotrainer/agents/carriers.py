"""Carriers take a request to whoever answers (a seat, a reader) and bring the answer back; chosen by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from evotrainer.errors import AgentError
from evotrainer.records.questions import Answered, CarrierOptions, Question
from evotrainer.records.seat import SeatBriefing
from evotrainer.registry import Registry


class CarrierError(AgentError):
    """No answer came: the step goes on with the statistical agent's own proposal."""


@dataclass(frozen=True)
class SeatTurn:
    """Where a request stands."""

    name: str
    """A name of its own in this run, fit for a file: `r1-search4-0`."""
    folder: Path
    """RUN/seat: what passes between carriers and commands."""
    key: str
    """Id of the event that will hold the answer; empty outside of runs."""
    timeout_s: float
    """Seconds after which nobody waits any longer."""
    hidden: tuple[Path, ...] = ()
    """What no program that answers may see: the run, keys, files of tasks."""


@dataclass(frozen=True)
class Reply:
    """An answer as it came."""

    raw: str
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    wall_s: float | None = None
    """Of a replay, what the answer took when it was given; None: measure it."""
    problem: str = ""
    """Why this is no answer: what the model or the program said of itself; of a replay, what was recorded."""
    cut: str = ""
    """Why it ends early, if it does: the cause where it cannot be read."""
    estimated: bool = False
    """Whoever answered told no tokens."""
    by: str = ""
    """Of a queue: who handed it over, and when (UTC, ISO 8601)."""
    at: str = ""

    @property
    def recorded(self) -> dict[str, Any]:
        """The fields of `records.questions.Answered`."""
        return {k: getattr(self, k) for k in Answered.model_fields} | {"wall_s": self.wall_s or 0.0}


def count(usage: Mapping[str, Any], *names: str) -> int:
    """Tokens under these names; what is no count is 0."""
    return sum(n for k in names if type(n := usage.get(k)) is int and 0 < n < 10**12)


class Carrier(Protocol):
    name: str

    def ask(self, request: SeatBriefing, turn: SeatTurn) -> Reply:
        """The answer; CarrierError where none comes. AgentError ends the run."""
        ...

    def put(self, question: Question, turn: SeatTurn) -> Reply:
        """The answer to any question; as `ask`."""
        ...


MakeCarrier = Callable[[CarrierOptions, Mapping[str, str], bool], Carrier]
"""(options, variable -> value of its secrets, does it answer a reader's questions and not a seat's?) -> the carrier."""
CARRIERS: Registry[MakeCarrier] = Registry(
    "carrier",
    "run.agent_options.carrier",
    {
        "llm": "evotrainer.agents.seat.carriers.llm:make",
        "command": "evotrainer.agents.seat.carriers.command:make",
        "queue": "evotrainer.agents.seat.carriers.queue:make",
        "replay": "evotrainer.agents.seat.carriers.replay:make",
    },
)
"""Who is asked, as the task file names it (`carrier` of a seat or a reader) -> what makes the carrier."""


def key_name(options: CarrierOptions) -> str:
    """Variable of the endpoint's key; empty: it needs none."""
    if not options.model or getattr(options, "carrier", "llm") != "llm" or (options.endpoint and not options.key_env):
        return ""
    return options.key_env or {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}[options.protocol]

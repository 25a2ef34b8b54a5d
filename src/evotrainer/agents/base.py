"""The agent contract: sees a `Briefing`, may backtest and read search-split rollouts, returns a `Proposal`.

An agent never sees gate or cert data and never decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.frozen import Frozen
from evotrainer.records.interventions import Backtest, Intervention
from evotrainer.records.rollout import Rollout
from evotrainer.records.search import SearchPlan


class Tools(Protocol):
    """What an agent may call while it thinks."""

    def backtest(self, intervention: Intervention) -> Backtest:
        """Replay a change over the champion's stored rollouts."""
        ...

    def rollouts(self, branch: str, limit: int = 100) -> Sequence[Rollout]:
        """Stored search rollouts of a branch, at most `limit`: trial by trial, in the order of its trials."""
        ...

    why_not: Callable[[Mapping[str, object]], str]
    """Why the run would not train these changes of the champion (factor -> new value), also for what its trainer cannot
    carry out; empty where it would."""


class Agent(Protocol):
    name: str

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        """Interventions for this round, best first; AgentError where the agent answers nothing usable."""
        ...


@runtime_checkable
class Searcher(Protocol):
    """An agent that trains before it proposes: search trainings of one seed, read on the search split, which promote
    nobody."""

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        """The next search trainings, side by side, at most `briefing.probes_left`; none, and why, where it knows
        enough. Called again with their outcome in `briefing.probes`."""
        ...


@runtime_checkable
class AgentWithSeat(Protocol):
    """An agent that asks others, through the ledger of its run."""

    def sit(self, log: Any) -> None:
        """Take the seat: `log` is an `agents.seat.requester.SeatLog`."""
        ...


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """A row of `agents.AGENTS`."""

    make: Callable[[int, Any], Agent]
    """(`run.seed`, its options) -> the agent."""
    options: type[Frozen] = Frozen
    """Model of `run.agent_options`; Frozen itself: it takes none."""

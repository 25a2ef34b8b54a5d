"""The agent contract: sees a `Briefing`, may backtest and read search-split rollouts, returns a `Proposal`.

An agent never sees gate or cert data and never decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import Backtest, Intervention
from evotrainer.records.rollout import Rollout


class Tools(Protocol):
    """What an agent may call while it thinks."""

    def backtest(self, intervention: Intervention) -> Backtest:
        """Replay a change over the champion's stored rollouts."""
        ...

    def rollouts(self, branch: str, limit: int = 100) -> Sequence[Rollout]:
        """Stored search rollouts of a branch, at most `limit`: trial by trial, in the order of its trials."""
        ...


class Agent(Protocol):
    name: str

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        """Interventions for this round, best first; AgentError where the agent answers nothing usable."""
        ...

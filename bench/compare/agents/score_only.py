"""The statistical agent without a harness: it sees search scores, and nothing else of the trainings."""

from __future__ import annotations

from collections.abc import Sequence

from evotrainer.agents.base import AgentSpec, Tools
from evotrainer.agents.pooled import PooledAgent, PooledOptions
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import Backtest, Intervention
from evotrainer.records.rollout import Rollout
from evotrainer.records.search import SearchPlan


class ScoreOnlyTools:
    """Tools that show no rollout; `tools`: whose run says what it would not train."""

    def __init__(self, tools: Tools) -> None:
        self.why_not = tools.why_not

    def backtest(self, intervention: Intervention) -> Backtest:
        return Backtest(factor=intervention.factor, verdict="silent", reason="an agent that sees scores only")

    def rollouts(self, branch: str, limit: int = 100) -> Sequence[Rollout]:
        return ()


def scores_only(briefing: Briefing) -> Briefing:
    """The briefing without what a harness or a skill has to say."""
    bare = briefing.health.model_copy(update={"metrics": (), "findings": (), "bottlenecks": ()})
    probes = tuple(p.model_copy(update={"invalid": (), "metrics": {}}) for p in briefing.probes)
    return briefing.model_copy(update={"health": bare, "probes": probes, "skills": (), "cases": ()})


class ScoreOnly:
    """`PooledAgent` in the dark."""

    name = "score_only"

    def __init__(self, seed: int, options: PooledOptions | None = None) -> None:
        self.agent = PooledAgent(seed, options)
        self.agent.name = self.agent.single.name = self.name

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        """As the statistical agent's, on scores alone."""
        return self.agent.search(scores_only(briefing), ScoreOnlyTools(tools))

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        """As the statistical agent's, on scores alone."""
        return self.agent.propose(scores_only(briefing), ScoreOnlyTools(tools))


SPEC = AgentSpec(ScoreOnly, PooledOptions)

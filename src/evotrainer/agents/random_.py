"""A control agent: uniformly random changes of one factor, among those that the statistical agent weighs in the same
situation. The baseline that other agents must beat."""

from __future__ import annotations

import numpy as np

from evotrainer.agents.base import AgentSpec, Tools
from evotrainer.agents.changes import earlier_attempt
from evotrainer.agents.fixed import plain
from evotrainer.agents.pool import candidate_pool, situation
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import Intervention


class RandomAgent:
    """Draws a factor uniformly, then one of its values; deterministic given (seed, round)."""

    name = "random"

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        """As many untried, lint-clean changes as branches are wanted, of different factors where there are enough."""
        recipe = briefing.champion.recipe
        revision = briefing.notes.get("revision", "0")
        rng = np.random.default_rng([self.seed, briefing.round, int(revision) if revision.isdigit() else 0])
        left: dict[str, list[object]] = {}
        for c in candidate_pool(briefing, tools, situation(briefing, tools, 0), np.inf):
            if earlier_attempt(briefing, c.factor, c.child.value(c.factor)) is None:
                left.setdefault(c.factor, []).append(c.variant.value)
        out: list[Intervention] = []
        fresh = list(left)
        while left and len(out) < briefing.branches_wanted:
            fresh = [f for f in fresh if f in left] or list(left)
            factor = fresh.pop(int(rng.integers(len(fresh))))
            new = left[factor].pop(int(rng.integers(len(left[factor]))))
            if not left[factor]:
                del left[factor]
            old = recipe.value(factor)
            out.append(plain(old, factor, new, "chance chose it", briefing.champion.branch, "random"))
        return Proposal(
            agent=self.name,
            interventions=tuple(out),
            reasoning=f"drawn uniformly with seed {self.seed}, round {briefing.round}",
            stop="" if out else "every change of the random search space has been tried",
        )


SPEC = AgentSpec(lambda seed, _: RandomAgent(seed))

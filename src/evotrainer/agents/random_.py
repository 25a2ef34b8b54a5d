"""A control agent: uniformly random valid single-factor changes. What an agent must beat."""

from __future__ import annotations

import numpy as np

from evotrainer.agents.base import Tools
from evotrainer.agents.changes import changed, neighbourhood, repeated, tried
from evotrainer.agents.fixed import plain
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import Intervention


class RandomAgent:
    """Draws a factor uniformly, then one of its values; deterministic given (seed, round)."""

    name = "random"

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        """As many untried, lint-clean changes as branches are wanted, of different factors where there are enough."""
        recipe, seen = briefing.champion.recipe, tried(briefing)
        revision = briefing.notes.get("revision", "0")
        rng = np.random.default_rng([self.seed, briefing.round, int(revision) if revision.isdigit() else 0])
        left = {
            factor: valid
            for factor, values in sorted(neighbourhood(recipe, briefing.components, briefing.knobs).items())
            if (
                valid := [
                    v
                    for v in values
                    if (c := changed(recipe, factor, v)) is not None
                    and c.hash not in seen
                    and repeated(briefing, factor, c.factors().get(factor)) is None
                ]
            )
        }
        out: list[Intervention] = []
        fresh = list(left)
        while left and len(out) < briefing.branches_wanted:
            fresh = [f for f in fresh if f in left] or list(left)
            factor = fresh.pop(int(rng.integers(len(fresh))))
            new = left[factor].pop(int(rng.integers(len(left[factor]))))
            if not left[factor]:
                del left[factor]
            old = recipe.factors().get(factor)
            out.append(plain(old, factor, new, "chance chose it", briefing.champion.branch, "random"))
        return Proposal(
            agent=self.name,
            interventions=tuple(out),
            reasoning=f"drawn uniformly with seed {self.seed}, round {briefing.round}",
            stop="" if out else "every change of the random search space has been tried",
        )

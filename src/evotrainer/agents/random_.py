"""A control agent: uniformly random valid single-factor changes. The baseline that other agents must beat."""

from __future__ import annotations

import numpy as np

from evotrainer.agents.base import AgentSpec, Tools
from evotrainer.agents.catalogue.values import pass_rates
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
        left: dict[str, list[object]] = {}
        tags = pass_rates({m.name: m.value for m in briefing.health.metrics if m.value is not None})
        space = neighbourhood(recipe, briefing.components, briefing.knobs, tags, briefing.offers)
        for factor, values in sorted(space.items()):
            for value in values:
                child = changed(recipe, factor, value)
                if child is None or child.hash in seen:
                    continue
                if repeated(briefing, factor, child.value(factor)) is None:
                    left.setdefault(factor, []).append(value)
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

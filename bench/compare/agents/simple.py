"""Arms that need no model: random recipes, greedy hill climbing, the best of N seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.compare.agents.control import ArmTraining, ControlArm, Space, fresh_recipes
from evotrainer.agents.base import AgentSpec
from evotrainer.agents.moves import CandidateMove

MOST_CHANGES = 6
"""A random recipe changes 1 to this many factors."""


class RandomRecipes(ControlArm):
    """Random search (Bergstra and Bengio 2012): each recipe changes 1 to 6 factors at random; the best score wins."""

    name = "random_recipes"
    most_changes = MOST_CHANGES

    def draw(
        self, space: Space, seen: Sequence[ArmTraining], rng: np.random.Generator, wanted: int
    ) -> list[dict[str, CandidateMove]]:
        return fresh_recipes(space, seen, wanted, lambda: random_recipe(space, rng))


def random_recipe(space: Space, rng: np.random.Generator) -> dict[str, CandidateMove]:
    """1 to `MOST_CHANGES` factors, each value of them alike."""
    names = list(space.factors)
    if not names:
        return {}
    k = int(rng.integers(1, min(MOST_CHANGES, len(names)) + 1))
    picked = [names[i] for i in rng.permutation(len(names))[:k]]
    return space.fit(space.factors[f][int(rng.integers(len(space.factors[f])))] for f in picked)


class Greedy(ControlArm):
    """Hill climbing on single scores: one change at a time, one seed, kept with any gain on search.

    As `autoresearch` keeps what scores better once: the bar is the kept training's own score, luck included.
    """

    name = "greedy"

    def draw(
        self, space: Space, seen: Sequence[ArmTraining], rng: np.random.Generator, wanted: int
    ) -> list[dict[str, CandidateMove]]:
        kept = space.changes(self.choose(seen).changes)
        return fresh_recipes(space, seen, wanted, lambda: space.step(kept, rng)) if space.factors else []


class BestOfN(ControlArm):
    """The starting recipe under further seeds; its best search score is reported."""

    name = "best_of_n"
    most_changes = 0

    def draw(
        self, space: Space, seen: Sequence[ArmTraining], rng: np.random.Generator, wanted: int
    ) -> list[dict[str, CandidateMove]]:
        return [{} for _ in range(wanted)]


RANDOM_RECIPES = AgentSpec(lambda seed, _: RandomRecipes(seed))
GREEDY = AgentSpec(lambda seed, _: Greedy(seed))
BEST_OF_N = AgentSpec(lambda seed, _: BestOfN(seed))

"""Bundles of changes that a search may train: what each would gain by the model, and what training it would teach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from evotrainer.agents.changes import changed
from evotrainer.agents.moves import CandidateMove, Situation
from evotrainer.errors import ConfigError
from evotrainer.projections.pooled import Level, PooledModel, level, levels
from evotrainer.records.briefing import Briefing
from evotrainer.records.recipe import Recipe, fields_of, lint

BEST = 8
"""Of the changes that are best by posterior mean, so many are weighed in bundles as well."""
NODES = np.linspace(-3.5, 3.5, 71)
"""Grid on which the expectation over a standard normal is summed."""
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()


@dataclass(frozen=True, slots=True)
class Arm:
    """A change of one factor that the search may make, alone or with others."""

    candidate: CandidateMove
    gains: frozenset[Level]
    """Levels, against the starting recipe, that the change brings ..."""
    loses: frozenset[Level]
    """... and that it takes away from the champion's."""


@dataclass(slots=True)
class Search:
    """What a search stands on: the champion's levels, the changes on offer, the model."""

    briefing: Briefing
    situation: Situation
    start: Recipe
    arms: list[Arm]
    model: PooledModel

    @property
    def home(self) -> frozenset[Level]:
        """The champion's levels."""
        return levels(self.start, self.briefing.champion.recipe)

    def of(self, bundle: Sequence[Arm]) -> frozenset[Level]:
        """Levels of the champion with these changes."""
        out = set(self.home)
        for arm in bundle:
            out = (out - arm.loses) | arm.gains
        return frozenset(out)

    def gain(self, bundle: Sequence[Arm]) -> tuple[float, float]:
        """(mean, sd) of the gain over the champion on search."""
        return self.model.gain(self.of(bundle), self.home)

    def closed(self, bundle: Sequence[Arm]) -> bool:
        """Does it hold all the changes of a training whose validity was questioned?"""
        mine = {level(a.candidate.factor, a.candidate.variant.value) for a in bundle}
        bad = [{level(f, v) for f, v in p.changes.items()} for p in self.briefing.probes if p.invalid]
        return any(b <= mine for b in bad)

    def bundles(self) -> Iterator[tuple[Arm, ...]]:
        """Bundles that are weighed against one another: every single change, and the best of them together."""
        singles = [(a,) for a in self.arms if not self.closed((a,))]
        yield from singles
        ranked = sorted((a for (a,) in singles), key=lambda a: (-self.gain((a,))[0], a.candidate.name))[:BEST]
        for size in range(2, self.briefing.changes + 1):
            for bundle in combinations(ranked, size):
                if fits(self.briefing.champion.recipe, bundle) and not self.closed(bundle):
                    yield bundle


def recipe_of(champion: Recipe, bundle: Sequence[Arm]) -> Recipe:
    """The champion's recipe with these changes."""
    return champion.with_changes({a.candidate.factor: a.candidate.variant.value for a in bundle})


def fits(champion: Recipe, bundle: Sequence[Arm]) -> bool:
    """Changes of different fields whose recipe is valid and lint-clean."""
    fields = [x for a in bundle for x in fields_of(a.candidate.factor)]
    if len(set(fields)) < len(fields):
        return False
    if len(bundle) == 1:
        a = bundle[0].candidate
        return changed(champion, a.factor, a.variant.value) is not None
    try:
        recipe = recipe_of(champion, bundle)
    except ConfigError:
        return False
    return not any(i.level == "error" for i in lint(recipe))


def knowledge_gradients(s: Search, bundles: Sequence[Sequence[Arm]]) -> np.ndarray:
    """Expected rise of the best posterior mean by one training of each bundle, (B,), score units.

    One observation moves all posterior means along one direction u, by a standard normal z:
    E max_b(m_b + u_b z) - max m (Frazier, Powell and Dayanik 2009). The champion itself is one of the choices.
    """
    home = s.model.row(s.home)
    rows = np.array([np.zeros_like(home), *(s.model.row(s.of(b)) - home for b in bundles)])
    means = rows @ s.model.mean
    out = []
    for b in bundles:
        x = s.model.row(s.of(b))
        x[0] = 1.0
        direction = s.model.cov @ x
        sd = float(np.sqrt(x @ direction + s.model.noise_sd**2))
        moved = means[:, None] + (rows @ direction / sd)[:, None] * NODES[None, :]
        out.append(float(moved.max(axis=0) @ WEIGHTS - means.max()))
    return np.array(out)

"""Bundles of changes that a search may train: which are near one another, what each would gain by the model, and what
training it would teach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from evotrainer.agents.moves import CandidateMove, Situation
from evotrainer.factors.change_rules import RULES, ProposedChange, gradient, why_not
from evotrainer.projections.pooled import Level, PooledModel, level, levels
from evotrainer.records.briefing import Briefing
from evotrainer.records.recipe import Recipe, fields_of

LEAST = 1e-9
"""A step that gains no more, score units, is none."""
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

    @property
    def value(self) -> Level:
        """The factor, and the value that it is given."""
        return level(self.candidate.factor, self.candidate.variant.value)


Bundle = tuple[Arm, ...]
"""Changes made together, against the champion; none: the champion."""


@dataclass(slots=True)
class Search:
    """What a search stands on: the champion's levels, the changes on offer, the model."""

    briefing: Briefing
    situation: Situation
    start: Recipe
    arms: list[Arm]
    model: PooledModel
    max_cost: float
    """Most compute of a training, as a multiple of the champion's."""

    home: frozenset[Level] = field(init=False)
    """The champion's levels."""
    at: dict[Level, Arm] = field(init=False)
    """Every change by its factor and value."""
    bad: list[set[Level]] = field(init=False)
    """Changes of the trainings whose validity was questioned."""
    _usable: dict[frozenset[str], bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.home = levels(self.start, self.briefing.champion.recipe)
        self.at = {a.value: a for a in self.arms}
        self.bad = [{level(f, v) for f, v in p.changes.items()} for p in self.briefing.probes if p.invalid]

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
        if not self.bad:
            return False
        mine = {a.value for a in bundle}
        return any(b <= mine for b in self.bad)

    def usable(self, bundle: Sequence[Arm]) -> bool:
        """May it be trained: no more factors and no more compute than allowed, a valid recipe, no closed direction?"""
        key = frozenset(a.candidate.name for a in bundle)
        if key not in self._usable:
            self._usable[key] = self._may_be_trained(bundle)
        return self._usable[key]

    def _may_be_trained(self, bundle: Sequence[Arm]) -> bool:
        cost = prod(a.candidate.cost for a in bundle)
        dear = cost > self.max_cost and not self.briefing.feedback
        most = max(self.briefing.bundle, self.briefing.changes)
        if len(bundle) > most or dear or self.closed(bundle):
            return False
        return not bundle or fits(self.briefing.champion.recipe, bundle)

    def arms_of(self, changes: Mapping[str, Any]) -> Bundle | None:
        """The arms behind a training's changes against the champion; None where one is not on offer any more."""
        found = [self.at.get(level(f, v)) for f, v in sorted(changes.items())]
        known = [a for a in found if a is not None]
        return tuple(known) if len(known) == len(found) else None

    def next_to(self, bundle: Bundle) -> Iterator[Bundle]:
        """Every recipe that is one change away: a change added or put in another's place, or taken back."""
        for a in self.arms:
            if a in bundle:
                yield tuple(x for x in bundle if x is not a)
            else:
                mine = set(fields_of(a.candidate.factor))
                kept = [x for x in bundle if not mine & set(fields_of(x.candidate.factor))]
                yield tuple(sorted([*kept, a], key=lambda x: x.candidate.name))

    def climb(self, effects: np.ndarray, bundle: Bundle, most: int | None = None, tried: bool = False) -> Bundle:
        """From a bundle, change by change, to the best if these were the effects; differing from it in `most` factors
        where that is given, with changes that were in force in a training only where `tried`."""
        first, value = bundle, self.worth(bundle, effects)
        while True:
            near = [b for b in self.next_to(bundle) if not tried or all(map(self.tried, b))]
            if most is not None:
                near = [b for b in near if changed_factors(first, b) <= most]
            ranked = sorted(((self.worth(b, effects), b) for b in near), key=lambda x: (-x[0], names(x[1])))
            better = next(((v, b) for v, b in ranked if v > value + LEAST and self.usable(b)), None)
            if better is None:
                return bundle
            value, bundle = better

    def tried(self, a: Arm) -> bool:
        """Was the change in force in a training? What nobody tried is not proposed on its prior alone."""
        return any(self.model.counts.get(x) for x in a.gains) or not a.gains

    def worth(self, bundle: Bundle, effects: np.ndarray) -> float:
        """Search score of the champion with these changes if these were the effects, up to a constant."""
        return float(self.model.row(self.of(bundle)) @ effects)


def arms_for(start: Recipe, champion: Recipe, moves: Iterable[CandidateMove]) -> list[Arm]:
    """The changes with what each brings and takes away, against the starting recipe."""
    home = levels(start, champion)
    there = [(c, levels(start, c.child)) for c in moves]
    return [Arm(c, x - home, home - x) for c, x in there]


def names(bundle: Sequence[Arm]) -> tuple[str, ...]:
    """Of its changes, in order."""
    return tuple(sorted(a.candidate.name for a in bundle))


def changed_factors(a: Bundle, b: Bundle) -> int:
    """Factors that one of them leaves alone and the other does not, or to which they give different values."""
    one, two = ({x.candidate.factor: x.candidate.name for x in side} for side in (a, b))
    return sum(one.get(f) != two.get(f) for f in one.keys() | two.keys())


def recipe_of(champion: Recipe, bundle: Sequence[Arm]) -> Recipe:
    """The champion's recipe with these changes."""
    return champion.with_changes({a.candidate.factor: a.candidate.variant.value for a in bundle})


def fits(champion: Recipe, bundle: Sequence[Arm]) -> bool:
    """Changes of different fields whose recipe is valid and has a gradient; each was looked at alone."""
    fields = [x for a in bundle for x in fields_of(a.candidate.factor)]
    change = ProposedChange(champion, {a.candidate.factor: a.candidate.variant.value for a in bundle})
    return len(set(fields)) == len(fields) and not why_not(change, RULES if len(bundle) == 1 else [gradient])


def knowledge_gradients(s: Search, bundles: Sequence[Bundle], trainings: int) -> np.ndarray:
    """Expected rise of the best that may be proposed, per training of each bundle, (B,), score units.

    Observations of one recipe move all posterior means along one direction u, by a standard normal z:
    E max_b(m_b + u_b z) - max m (Frazier, Powell and Dayanik 2009). Of the k that `trainings` allow, the k of the
    largest rise per training counts: where the noise is large one training changes no decision, and many do (the
    KG(*) policy, Frazier and Powell 2010). The champion is one of the choices, and what nobody tried is none until
    it has been trained.
    """
    home = s.model.row(s.home)
    rows = np.array([np.zeros_like(home), *(s.model.row(s.of(b)) - home for b in bundles)])
    means = rows @ s.model.mean
    proposable = np.array([True, *(all(map(s.tried, b)) for b in bundles)])
    best = means[proposable].max()
    repeats = [2**i for i in range(max(1, trainings).bit_length())]
    out = []
    for i, b in enumerate(bundles, 1):
        x = s.model.row(s.of(b))
        x[0] = 1.0
        direction = s.model.cov @ x
        among = proposable.copy()
        among[i] = True
        moves = (rows[among] @ direction)[:, None] * NODES[None, :]
        rises = []
        for k in repeats:
            sd = float(np.sqrt(x @ direction + s.model.noise_sd**2 / k))
            rises.append(float((means[among, None] + moves / sd).max(axis=0) @ WEIGHTS - best) / k)
        out.append(max(rises))
    return np.array(out)

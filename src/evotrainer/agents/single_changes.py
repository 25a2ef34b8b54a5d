"""The single changes that a search may train: what each would gain by the model, and what training it would teach."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evotrainer.agents.changes import with_change
from evotrainer.agents.moves import CandidateMove, Situation
from evotrainer.projections.pooled import Level, PooledModel, level, levels
from evotrainer.records.briefing import Briefing
from evotrainer.records.recipe import Recipe
from evotrainer.records.search import ProbeRecord

NODES = np.linspace(-3.5, 3.5, 71)
"""Grid on which the expectation over a standard normal is summed."""
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
SURE = 0.8
"""Confidence of the bound on the noise: three seeds of a reference lay 3 points apart where twelve had 8."""
HIDDEN = 0.05
"""Gain, score units, that noise must not hide before trainings are drawn from the model."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A change of one factor that the search may make."""

    candidate: CandidateMove
    gains: frozenset[Level]
    """Levels, against the starting recipe, that the change brings ..."""
    loses: frozenset[Level]
    """... and that it takes away from the champion's."""

    @property
    def value(self) -> Level:
        """The factor, and the value that it is given."""
        return level(self.candidate.factor, self.candidate.variant.value)


@dataclass(slots=True)
class Search:
    """What a search rests on: the champion's levels, the changes on offer, the model. None as an arm: the champion."""

    briefing: Briefing
    situation: Situation
    start: Recipe
    arms: list[Arm]
    model: PooledModel
    max_cost: float
    """Most compute of a training, as a multiple of the champion's."""

    home: frozenset[Level] = field(init=False)
    """The champion's levels."""
    closed: set[Level] = field(init=False)
    """Changes of the trainings whose validity was questioned."""
    usable: list[Arm] = field(init=False)
    """The changes that may be trained: no dearer than allowed, in a valid recipe, in no closed direction."""

    def __post_init__(self) -> None:
        champion = self.briefing.champion.recipe
        self.home = levels(self.start, champion)
        self.closed = {level(f, v) for p in self.briefing.probes if p.invalid for f, v in p.changes.items()}
        dear = np.inf if self.briefing.feedback else self.max_cost
        self.usable = [
            a
            for a in self.arms
            if a.candidate.cost <= dear
            and a.value not in self.closed
            and with_change(champion, a.candidate.factor, a.candidate.variant.value) is not None
        ]

    def of(self, arm: Arm | None) -> frozenset[Level]:
        """Levels of the champion with this change."""
        return (self.home - arm.loses) | arm.gains if arm else self.home

    def gain(self, arm: Arm | None) -> tuple[float, float]:
        """(mean, sd) of the gain over the champion on search."""
        return self.model.gain(self.of(arm), self.home)

    def worth(self, arm: Arm | None, effects: np.ndarray) -> float:
        """Search score of the champion with this change if these were the effects, up to a constant."""
        return float(self.model.row(self.of(arm)) @ effects)

    def tried(self, a: Arm) -> bool:
        """Was the change in force in a training? What nobody tried is not proposed on its prior alone."""
        return any(self.model.counts.get(x) for x in a.gains) or not a.gains

    def arm_of(self, changes: Mapping[str, Any]) -> Arm | None:
        """The usable arm behind a training of one change; None where there is none."""
        made = {level(f, v) for f, v in changes.items()}
        return next((a for a in self.usable if {a.value} == made), None)

    @property
    def mine(self) -> list[ProbeRecord]:
        """The search trainings of this champion."""
        return [p for p in self.briefing.probes if p.incumbent == self.briefing.champion.branch]


def arms_for(start: Recipe, champion: Recipe, moves: Iterable[CandidateMove]) -> list[Arm]:
    """The changes with what each brings and takes away, against the starting recipe."""
    home = levels(start, champion)
    there = [(c, levels(start, c.child)) for c in moves]
    return [Arm(c, x - home, home - x) for c, x in there]


def unscreened(s: Search, known: Collection[str], most: int, batch: Sequence[str] = ()) -> list[Arm]:
    """Changes of factors that no search training of this champion changed, while there are fewer than `most` trainings;
    first those of which a gain is expected: many searches end before the others.
    `known`: hashes of recipes that were trained. `batch`: factors of the trainings that are asked for at once."""
    if len(s.mine) + len(batch) >= most:
        return []
    done = {f for p in s.mine for f in p.changes} | set(batch)
    near = [a for a in s.usable if a.candidate.factor not in done]
    new = [a for a in near if a.candidate.child.hash not in known]
    return [a for a in new if a.candidate.mean > 0] or new


def unconfirmed(s: Search, most: int, batch: Sequence[str] = ()) -> list[Arm]:
    """Changes of factors that were screened, to any of their values, to be trained again or for the first time: until
    `most` trainings are spent on it, and only as long as two standard errors of a comparison on as many seeds as a
    branch has may hide `HIDDEN`: what is trained again tells the noise as well."""
    factors = {f for p in s.mine for f in p.changes}
    apart = s.model.noise_at_most(SURE) * (2 / max(2, len(s.briefing.champion.scores))) ** 0.5
    if len(s.mine) - len(factors) + len(batch) >= most or 2 * apart <= HIDDEN:
        return []
    return [a for a in s.usable if a.candidate.factor in factors]


def knowledge_gradients(s: Search, arms: Sequence[Arm | None], trainings: int) -> np.ndarray:
    """Expected rise of the best that may be proposed, per training of each arm, (A,), score units.

    Observations of one recipe move all posterior means along one direction u, by a standard normal z:
    E max_a(m_a + u_a z) - max m (Frazier, Powell and Dayanik 2009). Of the k that `trainings` allow, the k of the
    largest rise per training counts: where the noise is large one training changes no decision, and many do (the
    KG(*) policy, Frazier and Powell 2010). The champion is one of the choices, and what nobody tried is none until
    it has been trained.
    """
    home = s.model.row(s.home)
    rows = np.array([np.zeros_like(home), *(s.model.row(s.of(a)) - home for a in arms)])
    means = rows @ s.model.mean
    proposable = np.array([True, *(a is None or s.tried(a) for a in arms)])
    best = means[proposable].max()
    repeats = [2**i for i in range(max(1, trainings).bit_length())]
    out = []
    for i, a in enumerate(arms, 1):
        x = s.model.row(s.of(a))
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

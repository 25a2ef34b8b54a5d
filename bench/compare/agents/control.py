"""What control arms share: the changes on offer, how recipes are made of them, what was trained, what is chosen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from evotrainer.agents.base import Tools
from evotrainer.agents.changes import with_change
from evotrainer.agents.moves import CandidateMove
from evotrainer.agents.pool import candidate_pool, situation
from evotrainer.errors import ConfigError
from evotrainer.factors.lint import lint
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.recipe import Recipe, fields_of
from evotrainer.records.search import ProbePlan, SearchChoice, SearchPlan

REDRAWS = 200
"""Draws after which a recipe that was trained already is given up."""
MAX_COST = 1.45
"""Most compute of a training, as a multiple of the champion's: as the statistical agent has it."""

Changes = Mapping[str, CandidateMove]
"""Factor -> the change of it."""


@dataclass(frozen=True, slots=True)
class ArmTraining:
    """One training of a search, or the champion's."""

    changes: Mapping[str, Any]
    """Factor -> new value, against the champion."""
    recipe: Recipe
    score: float
    """Search score; minus infinity where it failed."""


@dataclass(frozen=True)
class Space:
    """The changes on offer: those that the statistical agent weighs in the same situation, without their priors."""

    champion: Recipe
    moves: Sequence[CandidateMove]

    @cached_property
    def factors(self) -> dict[str, list[CandidateMove]]:
        """Factor -> its changes, each value once, in an order that depends on nothing else."""
        out: dict[str, list[CandidateMove]] = {}
        for c in sorted(self.moves, key=lambda c: (c.factor, c.name, c.child.hash)):
            out.setdefault(c.factor, []).append(c)
        return out

    def changes(self, values: Mapping[str, Any]) -> dict[str, CandidateMove]:
        """The moves behind a training's changes."""
        found = {f: self.move(f, v) for f, v in values.items()}
        return {f: c for f, c in found.items() if c is not None}

    def move(self, factor: str, value: Any) -> CandidateMove | None:
        """The change of a factor to this value; None where there is none on offer."""
        return next((c for c in self.factors.get(factor, ()) if c.variant.value == value), None)

    def fit(self, moves: Iterable[CandidateMove]) -> dict[str, CandidateMove]:
        """As many of the changes as go together, earlier ones first: of different fields, in a valid recipe, at a cost
        that the statistical agent would pay as well."""
        asked, out = list(moves), list[CandidateMove]()
        if self._together(asked):
            out = asked
        else:
            for c in asked:
                if self._together([*out, c]):
                    out.append(c)
        return {c.factor: c for c in out}

    def _together(self, moves: Sequence[CandidateMove]) -> bool:
        return prod(x.cost for x in moves) <= MAX_COST and fits(self.champion, moves)

    def without(self, changes: Changes, factor: str) -> list[CandidateMove]:
        """Changes but those of the fields that this factor sets."""
        fields = set(fields_of(factor))
        return [c for f, c in sorted(changes.items()) if not fields & set(fields_of(f))]

    def step(self, changes: Changes, rng: np.random.Generator) -> dict[str, CandidateMove]:
        """One elementary step: a factor is changed, changed otherwise, or taken back."""
        names = list(self.factors)
        factor = names[int(rng.integers(len(names)))]
        kept = self.without(changes, factor)
        values: list[CandidateMove | None] = [c for c in self.factors[factor] if c is not changes.get(factor)]
        if factor in changes:
            values.append(None)
        if not values:
            return dict(changes)
        new = values[int(rng.integers(len(values)))]
        return self.fit([*kept, *([new] if new else [])])

    def plan(self, changes: Changes) -> ProbePlan:
        """The training of these changes."""
        return ProbePlan(
            changes={f: c.variant.value for f, c in sorted(changes.items())},
            moves=tuple(c.name for _, c in sorted(changes.items())),
        )

    def hash(self, changes: Changes) -> str:
        """Of the recipe with these changes."""
        return recipe_of(self.champion, changes.values()).hash


def recipe_of(champion: Recipe, moves: Iterable[CandidateMove]) -> Recipe:
    """The champion's recipe with these changes."""
    return champion.with_changes({c.factor: c.variant.value for c in moves})


def fits(champion: Recipe, moves: Sequence[CandidateMove]) -> bool:
    """Changes of different fields whose recipe is valid and lint-clean."""
    fields = [x for c in moves for x in fields_of(c.factor)]
    if len(set(fields)) < len(fields):
        return False
    if len(moves) == 1:
        return with_change(champion, moves[0].factor, moves[0].variant.value) is not None
    try:
        recipe = recipe_of(champion, moves)
    except ConfigError:
        return False
    return not any(i.level == "error" for i in lint(recipe))


class ControlArm(ABC):
    """A search of one round. Deterministic given (seed, round) and what the briefing and the tools say: it keeps no
    state, so that a run that was killed goes on as it would have.

    Subclasses say what to train next (`draw`) and, where it is not the best score, what they settle on (`choose`).
    """

    name = ""
    most_changes = 100
    """Factors that one of its trainings may change against the champion."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._known: tuple[tuple[int, str], Space] | None = None

    @abstractmethod
    def draw(
        self, space: Space, seen: Sequence[ArmTraining], rng: np.random.Generator, wanted: int
    ) -> list[dict[str, CandidateMove]]:
        """At most `wanted` recipes to train side by side. `seen`: the champion first, then all trainings, oldest
        first."""

    def choose(self, seen: Sequence[ArmTraining]) -> ArmTraining:
        """What the arm settles on: the best search score, of equal ones the earliest."""
        return max(seen, key=lambda t: t.score)

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        """The next search trainings, with what the arm would settle on by now."""
        space, seen = self._space(briefing, tools), trained(briefing)
        best = self.choose(seen)
        score = best.score if np.isfinite(best.score) else None
        choice = SearchChoice(changes=dict(best.changes), score=score)
        if briefing.probes_left <= 0:
            return SearchPlan(stop="the round's search trainings are used up", choice=choice)
        rng = np.random.default_rng([self.seed, briefing.round, len(briefing.probes)])
        wanted = min(briefing.probes_left, int(briefing.notes.get("workers", "1")))
        drawn = self.draw(space, seen, rng, wanted)
        if not drawn:
            return SearchPlan(stop="every recipe that it can reach has been trained", choice=choice)
        return SearchPlan(probes=tuple(space.plan(c) for c in drawn), choice=choice)

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        """Nothing: a control arm promotes nobody."""
        why = "a control arm proposes nothing; `python -m bench.compare` proves what it settled on"
        return Proposal(agent=self.name, interventions=(), stop=why)

    def _space(self, briefing: Briefing, tools: Tools) -> Space:
        """Read once a round: neither the champion nor its rollouts change within it."""
        at = (briefing.round, briefing.champion.branch)
        if self._known is None or self._known[0] != at:
            found = candidate_pool(briefing, tools, situation(briefing, tools, 3000), MAX_COST)
            self._known = (at, Space(briefing.champion.recipe, found))
        return self._known[1]


def trained(briefing: Briefing) -> list[ArmTraining]:
    """The champion as its own trainings have it on average, then this round's search trainings, oldest first."""
    champion = briefing.champion
    mean = float(np.mean(champion.scores)) if champion.scores else -np.inf
    mine = [p for p in briefing.probes if p.round == briefing.round]
    return [
        ArmTraining({}, champion.recipe, mean),
        *(ArmTraining(p.changes, p.recipe, -np.inf if p.score is None else p.score) for p in mine),
    ]


def fresh_recipes(
    space: Space, seen: Sequence[ArmTraining], wanted: int, make: Callable[[], dict[str, CandidateMove]]
) -> list[dict[str, CandidateMove]]:
    """Up to `wanted` recipes by `make()` that nobody trained, all different."""
    known = {t.recipe.hash for t in seen}
    out: list[dict[str, CandidateMove]] = []
    for _ in range(wanted):
        for _ in range(REDRAWS):
            made = make()
            if made and (h := space.hash(made)) not in known:
                known.add(h)
                out.append(made)
                break
    return out

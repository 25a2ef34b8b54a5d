"""Changes that may be proposed in a situation: the moves of the table of factors, made concrete, with their priors.

Reward moves are generated from whatever components the environment offers and rated by the stored rollouts
(`agents/rewards.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from evotrainer.agents.changes import with_change
from evotrainer.agents.moves import CandidateMove, Situation, prior
from evotrainer.factors import FACTORS
from evotrainer.factors.cost import relative_cost
from evotrainer.factors.table import Factor, Move, Variant, tag
from evotrainer.records.recipe import COMPOSITES


def variants(row: Factor, move: Move, s: Situation) -> Iterator[Variant]:
    """The values of a move in a situation, of a composite factor those of the one field that they change, if it is
    one."""
    values = move.values(s) if callable(move.values) else move.values if row.idle(s.recipe) else ()
    for v in values:
        v = v if isinstance(v, Variant) else Variant(v, tag(v))
        changed = [f for f in COMPOSITES.get(row.name, ()) if v.value[f] != s.recipe.value(f)]
        yield replace(v, factor=changed[0], value=v.value[changed[0]]) if len(changed) == 1 else v


def candidates(s: Situation, seen: set[str], table: Mapping[str, Factor] = FACTORS) -> Iterator[CandidateMove]:
    """Every valid, lint-clean, untried value of the table's moves, with its prior."""
    for row in table.values():
        for move in row.all_moves():
            mean, sd, bottleneck = prior(move.symptoms(), s)
            for v in variants(row, move, s):
                factor = v.factor or row.name
                child = with_change(s.recipe, factor, v.value)
                if child is not None and child.hash not in seen:
                    cost = relative_cost(s.recipe, child)
                    yield CandidateMove(move, v, factor, child, bottleneck, mean, sd, cost)


REVERT = Move("revert", (), "an earlier change may be worth nothing since later ones came")


def reverts(s: Situation, seen: set[str]) -> Iterator[CandidateMove]:
    """Undo one factor that differs from the starting recipe."""
    start = s.start.factors()
    differ = {f for f, now in s.recipe.factors().items() if f in start and start[f] != now}
    together = [name for name, fields in COMPOSITES.items() if len(differ & set(fields)) > 1]
    for factor in [*sorted(differ), *together]:
        before = s.start.value(factor)
        child = with_change(s.recipe, factor, before)
        if child is not None and child.hash not in seen:
            mean, sd, _ = prior({}, s)
            cost = relative_cost(s.recipe, child)
            yield CandidateMove(REVERT, Variant(before, factor), factor, child, "", mean, sd, cost)

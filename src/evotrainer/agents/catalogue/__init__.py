"""The typed catalogue of interventions: the field's known remedies for every factor of a recipe.

Reward moves are not listed: they are generated from whatever components the environment offers and rated by the stored
rollouts (`agents/rewards.py`). Preconditions leave out changes that cannot act, such as a wider clip range in a recipe
that makes one pass per step and so never leaves ratio 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evotrainer.agents.catalogue.algorithm import ALGORITHM
from evotrainer.agents.catalogue.data import DATA
from evotrainer.agents.catalogue.shape import SHAPE
from evotrainer.agents.catalogue.signal import SIGNAL
from evotrainer.agents.catalogue.start import CONTINUED
from evotrainer.agents.changes import changed
from evotrainer.agents.moves import CandidateMove, Move, Situation, Variant, relevance
from evotrainer.records.recipe import COMPOSITES

MOVES: tuple[Move, ...] = SIGNAL + SHAPE + DATA + ALGORITHM + CONTINUED


def candidates(s: Situation, seen: set[str], moves: Iterable[Move] = MOVES) -> Iterator[CandidateMove]:
    """Every valid, lint-clean, untried value of the moves, with its prior."""
    for move in moves:
        fit, bottleneck = relevance(move, s.symptoms)
        for v in move.values(s):
            factor = f"knobs.{v.detail.partition('=')[0]}" if move.factor == "knobs" else move.factor
            child = changed(s.recipe, factor, v.value)
            if child is None or child.hash in seen:
                continue
            mean = (1 - fit) * move.base + fit * move.gain * min(1.0, 2 * s.headroom)
            sd = move.idle_sd + fit * max(0.0, move.sd - move.idle_sd)
            yield CandidateMove(move, v, factor, child, bottleneck, mean, sd, v.cost or move.cost)


def reverts(s: Situation, seen: set[str]) -> Iterator[CandidateMove]:
    """Undo one factor that differs from the starting recipe: the subtraction that escalation asks for."""
    families = {m.factor: m.family for m in MOVES} | {"rewards": "reward"}
    start = s.start.factors()
    differ = {f for f, now in s.recipe.factors().items() if f in start and start[f] != now}
    together = [name for name, fields in COMPOSITES.items() if len(differ & set(fields)) > 1]
    for factor in [*sorted(differ), *together]:
        before = s.start.value(factor)
        move = Move(
            "revert",
            factor,
            families.get(factor, "data"),
            {},
            lambda _: (),
            "an earlier change may be worth nothing since later ones came",
            subtracts=True,
            base=-0.01,
        )
        child = changed(s.recipe, factor, before)
        if child is not None and child.hash not in seen:
            yield CandidateMove(move, Variant(before, factor), factor, child, "", move.base, move.idle_sd, 1.0)

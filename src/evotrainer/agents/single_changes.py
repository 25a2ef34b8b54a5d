"""Which changes a search trains alone, before it tries any together: each factor once, then the best again and beside
their other values."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from evotrainer.agents.bundles import Bundle, Search, recipe_of
from evotrainer.records.search import ProbeRecord

SURE = 0.8
"""Confidence of the bound on the noise: three seeds of a reference lay 3 points apart where twelve had 8."""
HIDDEN = 0.05
"""Gain, score units, that must not be hidden by noise before changes are tried together."""


def unscreened(s: Search, known: Collection[str], most: int, batch: Sequence[str] = ()) -> list[Bundle]:
    """Single changes of factors that no search training of this champion changed alone, while there are fewer than
    `most` trainings. `known`: hashes of recipes that were trained. `batch`: of each training asked for at once, the
    factor that it changes alone."""
    mine = trained(s)
    if len(mine) + len(batch) >= most:
        return []
    done = {f for p in mine if len(p.changes) == 1 for f in p.changes} | set(batch)
    near = [b for b in s.next_to(()) if b[0].candidate.factor not in done and s.usable(b)]
    return [b for b in near if recipe_of(s.briefing.champion.recipe, b).hash not in known]


def unconfirmed(s: Search, most: int, batch: Sequence[str] = ()) -> list[Bundle]:
    """Single changes of factors that were screened, to any of their values, to be trained again or for the first time:
    until `most` trainings are spent on it, and only as long as two standard errors of a comparison on as many seeds as
    a branch has may hide `HIDDEN`: what is trained again tells the noise as well."""
    singles = [p for p in trained(s) if len(p.changes) == 1]
    factors = {f for p in singles for f in p.changes}
    apart = s.model.noise_at_most(SURE) * (2 / max(2, len(s.briefing.champion.scores))) ** 0.5
    if len(singles) - len(factors) + len(batch) >= most or 2 * apart <= HIDDEN:
        return []
    return [b for b in s.next_to(()) if b[0].candidate.factor in factors and s.usable(b)]


def trained(s: Search) -> list[ProbeRecord]:
    """The search trainings of this champion."""
    return [p for p in s.briefing.probes if p.incumbent == s.briefing.champion.branch]

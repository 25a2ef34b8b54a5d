"""Which changes a search trains alone, before it tries any together: each once, then the best of them again."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from evotrainer.agents.bundles import Bundle, Search, recipe_of
from evotrainer.records.search import ProbeRecord


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
    """Single changes that were trained, to be trained again: until that was done `most` times, and only where the best
    of them gains less than two standard errors of a comparison on as many seeds as a branch has."""
    singles = [p for p in trained(s) if len(p.changes) == 1]
    tried = {a.candidate.name: (a,) for p in singles for a in s.arms_of(p.changes) or () if s.usable((a,))}
    repeats = len(singles) - len({p.recipe.hash for p in singles})
    if not tried or repeats + len(batch) >= most:
        return []
    best = max(s.gain(b)[0] for b in tried.values())
    seeds = max(2, len(s.briefing.champion.scores))
    return list(tried.values()) if best < 2 * s.model.noise_sd * (2 / seeds) ** 0.5 else []


def trained(s: Search) -> list[ProbeRecord]:
    """The search trainings of this champion."""
    return [p for p in s.briefing.probes if p.incumbent == s.briefing.champion.branch]

"""Single-factor changes: validity, repetition, and the elementary changes of what is paid."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from evotrainer.factors.change_rules import ProposedChange, why_not
from evotrainer.records.briefing import Briefing
from evotrainer.records.recipe import Recipe, fields_of


def with_change(recipe: Recipe, factor: str, new: Any) -> Recipe | None:
    """The recipe with the factor set; None where that is no valid, lint-clean change of exactly this factor."""
    change = ProposedChange(recipe, {factor: new})
    return None if why_not(change) else change.recipe


def trained_hashes(briefing: Briefing) -> set[str]:
    """Hashes of every recipe the run has trained: training one again would show nothing new."""
    return {b.recipe.hash for b in briefing.branches} | {briefing.champion.recipe.hash}


def earlier_attempt(briefing: Briefing, factor: str, new: Any) -> tuple[str, str] | None:
    """(branch, assumption) where this value of the factor was tried before: what a proposal must cite to try it again.

    The assumption is empty where none changed since: then it cannot be tried. None: it is new.
    """
    earlier = [
        b.branch
        for b in briefing.branches
        if b.intervention is not None and b.intervention.factor == factor and equal_values(b.recipe.value(factor), new)
    ]
    if not earlier:
        return None
    own = {f"recipe.{f}" for f in fields_of(factor)}
    since = [x for x in briefing.reopenable.get(earlier[-1], ()) if x not in own]
    return earlier[-1], next(iter(since), "")


def equal_values(a: Any, b: Any) -> bool:
    """Equality of two JSON values."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def reward_changes(
    rewards: Mapping[str, float], offered: Collection[str], negative: Collection[str] = ()
) -> dict[str, dict[str, float]]:
    """Every elementary move in the reward composition: signature -> new composition.

    Replace, add (at a tenth, half and all of the present total), remove, and re-weight each component; components in
    `negative` are offered as penalties. Re-weighting a lone component is left out: normalisation would undo it.
    """
    paid = {k: w for k, w in sorted(rewards.items()) if w}
    total = sum(abs(w) for w in paid.values()) or 1.0
    spare = sorted(set(offered) - paid.keys())
    out: dict[str, dict[str, float]] = {}
    for q in spare:
        sign = -1.0 if q in negative else 1.0
        for share in (0.1, 0.5, 1.0):
            out[f"add_reward {q}*{sign * share:g}"] = paid | {q: round(sign * share * total, 6)}
        if q in negative:
            continue
        for p, w in paid.items():
            out[f"replace_reward {p}->{q}"] = {k: x for k, x in paid.items() if k != p} | {q: w}
    if len(paid) > 1:
        for p, w in paid.items():
            out[f"remove_reward {p}"] = {k: x for k, x in paid.items() if k != p}
            for scale in (0.5, 2.0):
                out[f"reweight_reward {p}*{scale:g}"] = paid | {p: round(scale * w, 6)}
    return out

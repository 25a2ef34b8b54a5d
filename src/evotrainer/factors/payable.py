"""The outcome is not for sale: which reward components training may pay, by what a run's first event says.

`outcome` in an environment's description: its components that are the outcome or derive from it; `payable`: those of
them that the task file lets training pay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evotrainer.factors import FACTORS
from evotrainer.factors.data import OWN
from evotrainer.records.hooks import hook_fault
from evotrainer.records.recipe import Recipe
from evotrainer.records.scaffold import fault, slots_of
from evotrainer.records.written import static_fault


def unpayable(environment: Mapping[str, Any]) -> tuple[str, ...]:
    """Outcome components that training may not pay."""
    payable = environment.get("payable") or ()
    return tuple(c for c in environment.get("outcome") or () if c not in payable)


def on_offer(environment: Mapping[str, Any]) -> dict[str, str]:
    """Components that training may pay, with what each measures."""
    kept = unpayable(environment)
    return {name: about for name, about in environment["components"].items() if name not in kept}


def why_unpaid(recipe: Recipe, environment: Mapping[str, Any]) -> str:
    """Why a recipe may not be trained, by what it or what it goes on from pays: cause and remedy; empty where it
    may."""
    if recipe.start is not None and (why := why_unpaid(recipe.start, environment)):
        return f"in recipe.start, {why}"
    kept = unpayable(environment)
    for name, source in recipe.written.items():
        if (fault := static_fault(source, kept)) is not None:
            return f"recipe.written {name}: {fault[0]}: {fault[1]}"
    for name, source in recipe.hooks.items():
        if (fault := hook_fault(source, kept)) is not None:
            return f"recipe.hooks {name}: {fault[0]}: {fault[1]}"
    paid = [c for c, w in sorted(recipe.rewards.items()) if w and c in kept]
    if not paid:
        return ""
    names = ", ".join(paid)
    quoted = ", ".join(f'"{c}"' for c in (*(environment.get("payable") or ()), *paid))
    return (
        f"recipe.rewards pays {names}: the outcome of {environment.get('name', 'the environment')}, or derived from "
        f"it, which is not for sale; reward {' or '.join(sorted(on_offer(environment))) or 'something else'}, or set "
        f"environment.payable = [{quoted}] where the outcome is what training may see"
    )


def usable(environment: Mapping[str, Any]) -> tuple[str, ...]:
    """What training may use of what the environment offers. References are worked out from the outcome's own answers:
    they may be learnt from where the task file lets training pay some of it."""
    sold = not environment.get("outcome") or bool(environment.get("payable"))
    offered = tuple(x for x in environment.get("offers") or () if sold or x != "references")
    return (*offered, *(("demonstrations",) if environment.get("demonstrations", True) else ()))


def why_unusable(recipe: Recipe, environment: Mapping[str, Any]) -> str:
    """Why a recipe, or what it goes on from, asks for what there is not, or what may not be learnt from; empty where
    it does not."""
    if recipe.start is not None and (why := why_unusable(recipe.start, environment)):
        return f"in recipe.start, {why}"
    name = environment.get("name", "the environment")
    if (found := fault(recipe.scaffold, slots_of(environment), name)) is not None:
        return f"recipe.scaffold: {found[0]}: {found[1]}"
    offered, may = environment.get("offers") or (), usable(environment)
    for factor, need in ((f, row.need) for f, row in FACTORS.items() if row.need is not None):
        if need.offer in may or not need.when(recipe):
            continue
        if need.offer not in offered:
            return f"recipe.{factor}: {name} {need.why}"
        some = next(iter(environment["outcome"]))
        return (
            f"recipe.{factor}: {need.offer} of {name} are answers to its outcome, which is not for sale; {OWN}, or set "
            f'environment.payable = ["{some}"] where the outcome is what training may see'
        )
    return ""

"""The outcome is not for sale: which reward components training may pay, by what a run's first event says.

`outcome` in an environment's description: its components that are the outcome or derive from it; `payable`: those of
them that the task file lets training pay. A run recorded by an earlier version has neither: all is payable there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evotrainer.errors import ConfigError
from evotrainer.records.recipe import Recipe


def unpayable(environment: Mapping[str, Any]) -> tuple[str, ...]:
    """Outcome components that training may not pay."""
    payable = environment.get("payable") or ()
    return tuple(c for c in environment.get("outcome") or () if c not in payable)


def on_offer(environment: Mapping[str, Any]) -> dict[str, str]:
    """Components that training may pay, with what each measures."""
    kept = unpayable(environment)
    return {name: about for name, about in environment["components"].items() if name not in kept}


def why_unpaid(recipe: Recipe, environment: Mapping[str, Any]) -> str:
    """Why a recipe may not be trained, by what it pays: cause and remedy; empty where it may."""
    kept = unpayable(environment)
    paid = [c for c, w in sorted(recipe.rewards.items()) if w and c in kept]
    if not paid:
        return ""
    names = ", ".join(paid)
    told = ", ".join(f'"{c}"' for c in (*(environment.get("payable") or ()), *paid))
    return (
        f"recipe.rewards pays {names}: the outcome of {environment.get('name', 'the environment')}, or derived from "
        f"it, which is not for sale; reward {' or '.join(sorted(on_offer(environment))) or 'something else'}, or set "
        f"environment.payable = [{told}] where the outcome is what training may see"
    )


def check_paid(recipe: Recipe, environment: Mapping[str, Any]) -> None:
    """ConfigError, with cause and remedy, where a recipe pays what may not be paid."""
    if why := why_unpaid(recipe, environment):
        raise ConfigError(why)

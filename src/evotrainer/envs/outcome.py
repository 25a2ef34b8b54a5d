"""Which reward components are the outcome, and which of them a task file lets training pay (`environment.payable`)."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from evotrainer.envs.base import OFFERS, Environment, EnvironmentWithOutcome, EnvironmentWithSlots
from evotrainer.envs.return_checks import demonstrations_of
from evotrainer.errors import TaskSetError

LOOKED_AT = 8
"""Demonstrations asked for, to learn whether there are any: a mixed source may have none of its first share."""
OPTION = "payable"
"""Key of `[environment]`; every environment has it."""


def outcome_components(environment: Environment) -> tuple[str, ...]:
    """Components that are the outcome or derive from it, in the environment's order.

    As the environment declares them; of one that declares none, the true side of its proxy. Empty: it does not say.
    TaskSetError where it declares a component that it does not have.
    """
    declared: tuple[str, ...] = ()
    if isinstance(environment, EnvironmentWithOutcome):
        declared = tuple(environment.outcome_components)
    elif environment.proxy:
        declared = (environment.proxy[1],)
    if unknown := [c for c in declared if c not in environment.components]:
        raise TaskSetError(
            f"environment {environment.name} declares {unknown[0]!r} as its outcome, which is none of its components: "
            f"{', '.join(environment.components)}; correct outcome_components"
        )
    return tuple(c for c in environment.components if c in declared)


def pay_terms(environment: Environment, config: Mapping[str, Any]) -> dict[str, Any]:
    """What an environment's description holds of them: `outcome`, and `payable` by the task file's `[environment]`;
    beside them `offers`, `demonstrations`: has it any, and `slots` where it declares any."""
    terms: dict[str, Any] = {
        "outcome": list(outcome_components(environment)),
        "payable": list(payable_components(config)),
        "offers": list(offers(environment)),
        "demonstrations": bool(demonstrations_of(environment, LOOKED_AT, 0)),
    }
    if isinstance(environment, EnvironmentWithSlots) and environment.slots:
        terms["slots"] = [s.model_dump(mode="json") for s in environment.slots]
    return terms


def offers(environment: Environment) -> tuple[str, ...]:
    """What else training may use, of OFFERS; TaskSetError for another word."""
    declared = tuple(getattr(environment, "offers", ()))
    if unknown := [x for x in declared if x not in OFFERS]:
        raise TaskSetError(
            f"environment {environment.name} offers {unknown[0]!r}, which training knows nothing of; "
            f"offers may hold: {', '.join(OFFERS)}"
        )
    return declared


def payable_components(config: Mapping[str, Any]) -> tuple[str, ...]:
    """`environment.payable` of a task file: outcome components that training may pay; empty where it says nothing."""
    value = config.get(OPTION, [])
    if not isinstance(value, list | tuple) or not all(isinstance(c, str) for c in value):
        raise TaskSetError(f'environment.payable is a list of reward components, e.g. ["correct"], not {value!r}')
    return tuple(value)


def check_payable(environment: Environment, payable: tuple[str, ...]) -> None:
    """TaskSetError for a name that is no component of the environment, and for an outcome that is none."""
    outcome_components(environment)
    for name in payable:
        if name not in environment.components:
            near = get_close_matches(name, environment.components, 1)
            own = getattr(environment, "own_names", {}).get(name)
            what = own or f"did you mean {near[0]}?" if own or near else f"it has: {', '.join(environment.components)}"
            raise TaskSetError(f"environment.payable: {environment.name} has no reward component {name!r}; {what}")


def check_needed(environment: Environment, config: Mapping[str, Any]) -> None:
    """TaskSetError where `environment.payable` names what needs no leave, as it is no outcome."""
    outcome = outcome_components(environment)
    if outcome and (free := [c for c in payable_components(config) if c not in outcome]):
        raise TaskSetError(
            f"environment.payable: {free[0]} is no outcome of {environment.name} (that is {', '.join(outcome)}), so it "
            "may be paid as it is; leave it out"
        )

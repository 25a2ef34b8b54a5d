"""May a change be trained, and if not, why? One list of rules, asked by agents, the run, its seat, tests and `verify`.

A rule answers with cause and remedy, or with an empty text; it may raise what a recipe refuses. What only a run knows
(its trainer, budget, shortcuts, what was tried) is in `run/change_rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from evotrainer.errors import ConfigError, SingleFactorError
from evotrainer.factors.lint import lint
from evotrainer.factors.payable import why_unpaid, why_unusable
from evotrainer.records.one_factor import check_changes, check_start, single_factor
from evotrainer.records.recipe import Recipe, diff, format_diff


@dataclass(frozen=True)
class ProposedChange:
    """What somebody wants to have trained."""

    parent: Recipe
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Factor -> new value; none: the parent's recipe as it is."""
    most: int = 1
    """Factors that may change at once."""
    environment: Mapping[str, Any] | None = None
    """As a run's first event describes it; None: not known."""
    made: Recipe | None = None
    """The recipe, where it is recorded; None: what the changes make of the parent's."""

    @cached_property
    def recipe(self) -> Recipe:
        """ConfigError for a factor or a value that there is not."""
        return self.made or self.parent.with_changes(self.changes)


def declared(c: ProposedChange) -> str:
    """Exactly the factors that are named change."""
    if not c.changes and c.recipe.hash != c.parent.hash:
        return f"changes nothing, but its recipe does: {format_diff(diff(c.parent, c.recipe))}"
    if len(c.changes) > 1:
        check_changes(c.parent, c.recipe, c.changes, c.most)
        return ""
    for factor in c.changes:
        if c.made is not None and c.parent.with_changes(c.changes).hash != c.made.hash:
            return f"the change does not make its recipe: {format_diff(diff(c.parent, c.made))}"
        if (found := single_factor(c.parent, c.recipe)) != factor:
            return f"declared factor {factor}, but the recipes differ in {found}"
    return ""


def start(c: ProposedChange) -> str:
    """It goes on from what its parent was, or from nothing."""
    check_start(c.parent, c.recipe)
    return ""


def names(c: ProposedChange) -> str:
    """The environment has what it names; one that nothing was recorded of is not asked."""
    if e := c.environment:
        check_names(c.recipe, e.get("name", ""), e.get("components", ()), e.get("knobs", {}))
    return ""


def pays(c: ProposedChange) -> str:
    """What it pays is for sale."""
    return why_unpaid(c.recipe, c.environment) if c.environment is not None else ""


def uses(c: ProposedChange) -> str:
    """What it learns from is there, and may be learnt from."""
    return why_unusable(c.recipe, c.environment) if c.environment is not None else ""


def gradient(c: ProposedChange) -> str:
    """Its parts make sense together: there is a gradient."""
    return lint_errors(c.recipe)


Rule = Callable[[ProposedChange], str]
RULES: Sequence[Rule] = (declared, start, names, pays, uses, gradient)
"""In the order in which they are asked."""
RECORDED: Sequence[Rule] = (declared, start, names, pays, uses)
"""What `verify` asks of a change that was trained: all but the lint, which may learn more than it knew then."""
OF_A_START: Sequence[Rule] = (names, pays, uses)
"""What is asked of a recipe that is nobody's change."""


def why_not(change: ProposedChange, rules: Iterable[Rule] = RULES) -> str:
    """Why a change may not be trained: the first rule's answer; empty where it may be."""
    try:
        return next(filter(None, (rule(change) for rule in rules)), "")
    except (ConfigError, SingleFactorError) as e:
        return str(e)


def refuse_start(recipe: Recipe, environment: Mapping[str, Any]) -> None:
    """ConfigError where a recipe may not be trained in an environment."""
    if why := why_not(ProposedChange(recipe, environment=environment), OF_A_START):
        raise ConfigError(why)


def lint_errors(recipe: Recipe) -> str:
    """What the lint refuses of a recipe; empty: nothing."""
    return "; ".join(f"{x.factor}: {x.message}" for x in lint(recipe) if x.level == "error")


def check_names(
    recipe: Recipe, name: str, components: Collection[str], knobs: Mapping[str, Sequence[Any] | str]
) -> None:
    """Reward components, knobs and their values must exist in the environment, of the recipes that it goes on from,
    too; ConfigError lists what there is."""
    if recipe.start is not None:
        check_names(recipe.start, name, components, knobs)
    for what, verb, used, known in (
        ("reward component", "offers", recipe.rewards.keys() - recipe.written.keys(), components),
        ("environment knob", "has", recipe.knobs.keys(), knobs.keys()),
    ):
        if unknown := sorted(used - set(known)):
            near = get_close_matches(unknown[0], list(known), 1)
            raise ConfigError(
                f"unknown {what} {', '.join(unknown)}{f', did you mean {near[0]}?' if near else ''}; "
                f"{name} {verb}: {', '.join(sorted(known)) or 'none'}"
            )
    for knob, values in knobs.items():
        if not isinstance(values, str) and any(", " in str(v) for v in values):
            raise ConfigError(
                f"environment knob {knob} of {name} has a value with a comma and a blank; give it another name"
            )
    for knob, value in recipe.knobs.items():
        allowed = knobs[knob]
        legal = allowed.split(", ") if isinstance(allowed, str) else [str(v) for v in allowed]
        if str(value) not in legal:
            raise ConfigError(f"knobs.{knob} = {value!r} is not allowed by {name}; one of: {', '.join(legal)}")

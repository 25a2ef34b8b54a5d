"""What a run starts from and evaluates with, once shortcuts were closed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evotrainer.config.evaluation import EvaluationProtocol
from evotrainer.config.task import TaskFile
from evotrainer.projections.state import RunState
from evotrainer.records.recipe import Recipe

PROTOCOL = tuple(EvaluationProtocol.model_fields)
"""Factors under which every policy of the run is evaluated alike; a recipe's own `deploy_temperature` goes before the
temperature."""


def evaluated(task: TaskFile) -> Recipe:
    """The starting recipe as evaluations sample it: with what `evaluation.protocol` says in its place."""
    return task.recipe.model_copy(update=task.evaluation.protocol.model_dump(exclude_none=True))


def protocol(task: TaskFile, recipe: Recipe, knobs: Mapping[str, Any]) -> Recipe:
    """What evaluations of a recipe's policy sample under: the frozen protocol, the same for every policy of the run.

    A branch that samples colder, longer or under easier knobs in training gains nothing by that in its evaluation. The
    temperature at which its policy is to be used is a factor of its own, and said wherever it counts.
    """
    start = evaluated(task)
    frozen = {f: getattr(start, f) for f in PROTOCOL} | {"knobs": knobs}
    if recipe.deploy_temperature is not None:
        frozen["temperature"] = recipe.deploy_temperature
    return recipe.model_copy(update=frozen)


def starting_recipe(task: TaskFile, state: RunState) -> Recipe:
    """The task file's recipe with every confirmed shortcut closed in training, too:
    that of `b0`, and of a branch that starts anew because no version is valid."""
    return closed(task.recipe, state.confirmed)


def closed(recipe: Recipe, knobs: Mapping[str, Any]) -> Recipe:
    """A recipe with these environment knobs, also in what it goes on from."""
    start = closed(recipe.start, knobs) if recipe.start else None
    return recipe.model_copy(update={"knobs": {**recipe.knobs, **knobs}, "start": start})


SHARES = 3
"""Search trainings that one seed may have, where they go on from the same training: it is paid for once."""


def continues(recipe: Recipe, other: Recipe) -> bool:
    """Does a training of another recipe hold, under the same seed, the training that this one goes on from?"""
    return recipe.start is not None and recipe.start.hash in {r.hash for r in other.chain} and recipe.hash != other.hash


def env_knobs(task: TaskFile, state: RunState) -> dict[str, Any]:
    """Environment knobs of every evaluation of a run as it stands."""
    return {**evaluated(task).knobs, **state.closed}

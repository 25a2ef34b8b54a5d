"""What a run starts from and evaluates with, once shortcuts were closed."""

from __future__ import annotations

from typing import Any

from evotrainer.config.task import TaskFile
from evotrainer.projections.state import RunState
from evotrainer.records.recipe import Recipe


def starting_recipe(task: TaskFile, state: RunState) -> Recipe:
    """The task file's recipe with every confirmed shortcut closed in training, too:
    that of `b0`, and of a branch that starts anew because no version is valid."""
    return task.recipe.model_copy(update={"knobs": {**task.recipe.knobs, **state.confirmed}})


def env_knobs(task: TaskFile, state: RunState) -> dict[str, Any]:
    """Environment knobs of every evaluation of a run as it stands."""
    return {**task.recipe.knobs, **state.closed}

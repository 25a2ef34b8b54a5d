"""What a branch is judged against, and the recipe that spends a branch's training compute on its control."""

from __future__ import annotations

from math import ceil

from evotrainer.config.task import TaskFile
from evotrainer.judge import cost_ratio
from evotrainer.projections.branches import START
from evotrainer.projections.state import RunState
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.recipe import Recipe

SINCE = 2
"""`RunOpened.rules` from which a run asks for equal compute."""


def limit(task: TaskFile, state: RunState) -> float | None:
    """`judge.max_cost`; None in a run that was begun before it was asked for."""
    return task.judge.max_cost if state.rules >= SINCE else None


def control_of(state: RunState, branch: str) -> str:
    """The branch that a verdict compares with: the parent's recipe trained for as long as the branch, where there is
    such a one, else the parent, also after another promotion."""
    matched = (x.branch for x in state.branches.values() if x.matches == branch)
    return next(matched, state.branches[branch].parent or START)


def steps_to_match(task: TaskFile, state: RunState, branch: str) -> int | None:
    """Steps in which the parent's recipe costs what the branch cost; None where it is not dearer than allowed."""
    most, b = limit(task, state), state.branches[branch]
    if most is None or b.parent is None:
        return None
    parent = state.branches[b.parent]
    if parent.recipe.with_factor("steps", b.recipe.steps).hash == b.recipe.hash:
        return None  # its control at equal compute would be itself
    found = cost_ratio(b.complete, parent.complete)
    # the limit is allowed in any case, but a control in the branch's favour would be no control: all of the ratio
    return ceil(parent.recipe.steps * found.ratio) if found and found.above(most) else None


def longer(recipe: Recipe, steps: int, branch: str) -> Intervention:
    """The change of steps, as every branch declares its one change."""
    return Intervention(
        factor="steps",
        old=recipe.steps,
        new=steps,
        hypothesis=f"control of {branch}: the compute that {branch} takes gains as much without its change",
        prediction=Prediction(metric="score", direction="up", size=0.0),
        success_criterion="none: it is a control and is never promoted",
        rollback="none",
        move="equal compute",
    )

"""A winner on fresh seeds: which trainings are compared with which."""

from __future__ import annotations

from dataclasses import dataclass

from evotrainer.config.task import TaskFile
from evotrainer.projections.branches import START
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.events import TrialFinished
from evotrainer.rules.equal_compute import control_of


@dataclass(frozen=True, slots=True)
class FreshSides:
    """Branch, control and, where that is not the control, the starting recipe, each with its trainings."""

    branches: tuple[str, ...]
    trials: tuple[list[TrialFinished], ...]
    control_fresh: bool
    """Was the control trained on fresh seeds, too?"""


def fresh_trainings(task: TaskFile, state: RunState, branch: str) -> list[TrialFinished]:
    """A branch's complete trainings on certification's seeds."""
    known = [state.trials.get(keys.training(branch, s)) for s in task.run.certify_seeds]
    return [t.finished for t in known if t and t.finished and t.finished.status == "complete"]


def fresh_sides(task: TaskFile, state: RunState, branch: str) -> FreshSides:
    """Fresh trainings of each side; a control, or the starting recipe, that has none stands with its own."""
    control = control_of(state, branch)
    names = (branch, control) if control == START else (branch, control, START)
    found = [fresh_trainings(task, state, x) for x in names]
    trials = (found[0], *(t or state.branches[x].complete for x, t in zip(names[1:], found[1:], strict=True)))
    return FreshSides(names, trials, bool(found[1]))

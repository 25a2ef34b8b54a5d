"""Trainings on fresh seeds: what a winner is worth by them. Run and `verify` ask here."""

from __future__ import annotations

from evotrainer.config.task import TaskFile
from evotrainer.judge import reestimated
from evotrainer.projections.branches import START
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.events import Reestimated, TrialFinished
from evotrainer.rules.equal_compute import control_of
from evotrainer.rules.evaluations import evaluations_under
from evotrainer.rules.recipes import env_knobs


def fresh_trainings(task: TaskFile, state: RunState, branch: str) -> list[TrialFinished]:
    """A branch's complete trainings on certification's seeds."""
    known = [state.trials.get(keys.training(branch, s)) for s in task.run.certify_seeds]
    return [t.finished for t in known if t and t.finished and t.finished.status == "complete"]


def sides_of(task: TaskFile, state: RunState, name: str) -> dict[str, list[TrialFinished]]:
    """The sides of a re-estimation with their trainings: the branch, its control and, where that is not the control,
    the starting recipe. A control, or the starting recipe, that has no fresh trainings stands with its own."""
    control = control_of(state, name)
    fresh = {x: fresh_trainings(task, state, x) for x in dict.fromkeys((name, control, START))}
    return {x: trials or ([] if x == name else state.branches[x].complete) for x, trials in fresh.items()}


def reestimate(task: TaskFile, state: RunState, name: str) -> Reestimated:
    """A promoted branch's effect on fresh seeds, all sides with scores under the run's present environment knobs."""
    sides, verdict = sides_of(task, state, name), state.branches[name].verdict
    control, knobs = control_of(state, name), env_knobs(task, state)
    return reestimated(
        list(sides),
        list(sides.values()),
        [evaluations_under(state, trials, knobs) for trials in sides.values()],
        state.noises,
        selected=verdict.effect if verdict else None,
        control_fresh=bool(fresh_trainings(task, state, control)),
    )

"""A winner's effect on fresh seeds, which know nothing of how it was chosen. Run and `verify` ask here."""

from __future__ import annotations

from evotrainer.config.task import TaskFile
from evotrainer.judge import scores_of, with_shortcut_closed
from evotrainer.judge.stats import effect
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
    verdict, knobs = state.branches[name].verdict, env_knobs(task, state)
    trials = sides_of(task, state, name)
    evaluated = {x: evaluations_under(state, own, knobs) for x, own in trials.items()}
    scores = {
        x: scores_of(with_shortcut_closed(own, evaluated[x]) if evaluated[x] else own, "gate")
        for x, own in trials.items()
    }
    control, noise = control_of(state, name), list(state.noises)[-1]
    against = {x: effect(scores[name], scores[x], state.noises[noise], names=(name, x)) for x in trials if x != name}
    return Reestimated(
        branch=name,
        control=control,
        split="gate",
        effect=against[control],
        selected=verdict.effect if verdict else None,
        start=against.get(START) if control != START else None,
        seeds=tuple(sorted(scores[name])),
        control_fresh=bool(fresh_trainings(task, state, control)),
        trials=tuple(t.trial for t in trials[name]),
        control_trials=tuple(t.trial for t in trials[control]),
        start_trials=tuple(t.trial for x, own in trials.items() if x not in (name, control) for t in own),
        evaluations=tuple(t.trial for own in evaluated.values() for t in own),
        noise=noise,
    )

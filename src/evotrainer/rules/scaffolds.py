"""What a branch's scaffold does alone: the base policy, untrained, with the texts of both sides of a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evotrainer.config.task import TaskFile
from evotrainer.judge import ScaffoldControl
from evotrainer.judge.scaffold import alone
from evotrainer.projections.branches import Branch
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.events import SplitScore, TrialFinished
from evotrainer.records.recipe import Recipe
from evotrainer.records.scaffold import digest
from evotrainer.records.sealed import SealedSplits
from evotrainer.rules.evaluations import name_under

Numbers = dict[str, float]


def differ(b: Branch, control: Branch) -> bool:
    """Have the two sides of a verdict other texts around their tasks?"""
    return dict(b.recipe.scaffold) != dict(control.recipe.scaffold)


def base_trial(task: TaskFile, state: RunState, scaffold: Mapping[str, str], knobs: Mapping[str, Any]) -> str:
    """The trial that evaluates the base policy with these texts under these environment knobs."""
    shortcuts, base = state.shortcuts, state.base
    usual = dict(scaffold) == dict(task.recipe.scaffold)
    if usual and base is not None and shortcuts.same(base.env_knobs, knobs):
        return keys.BASE_TRIAL
    name = keys.BASE_TRIAL if usual else keys.with_texts(keys.BASE_TRIAL, digest(scaffold))
    return name_under(shortcuts, name, knobs) if usual or shortcuts.closed_names(knobs) else name


def cert_alone(champion: Branch | None, start: Recipe, base: SplitScore, trials: Sequence[TrialFinished]) -> Numbers:
    """What a champion's texts do to the base policy on cert, whose own score is `base`; empty where they are those of
    the starting recipe. `trials`: what is finished."""
    if champion is None or dict(champion.recipe.scaffold) == dict(start.scaffold):
        return {}
    name = keys.with_texts(keys.BASE_TRIAL, digest(champion.recipe.scaffold))
    own = [t for t in trials if t.trial.startswith(keys.certification(name)) and t.status == "complete"]
    read = [s for t in own for s in t.scores if s.split == "cert"]
    return alone(base.per_task, SealedSplits.readable(read[-1], name).per_task) if read else {}


def scaffold_control(task: TaskFile, state: RunState, b: Branch, control: Branch, knobs: Any) -> ScaffoldControl | None:
    """The base policy's two evaluations, as far as there are any; None where both sides have the same texts."""
    if not differ(b, control) or knobs is None:
        return None

    def found(side: Branch) -> TrialFinished | None:
        known = state.trials.get(base_trial(task, state, side.recipe.scaffold, knobs))
        return known.finished if known else None

    return ScaffoldControl(before=found(control), after=found(b))

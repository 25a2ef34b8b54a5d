"""Evaluations on guards: which there are in a state of a run, and what policies sample under there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evotrainer.config.guards import GuardConfig
from evotrainer.config.task import TaskFile
from evotrainer.errors import IntegrityError
from evotrainer.judge.guards import row
from evotrainer.judge.inputs import GuardReading
from evotrainer.projections.branches import Branch
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.events import TrialFinished
from evotrainer.records.recipe import Recipe
from evotrainer.records.structured_factors import Curriculum, Replay
from evotrainer.records.verdicts import GuardRow
from evotrainer.rules.recipes import protocol


def protocol_on(task: TaskFile, recipe: Recipe, g: GuardConfig, component: str) -> Recipe:
    """What a recipe's policy samples under on a guard: as in every evaluation of the run, with the guard's own limits,
    and without what the recipe says of the task's environment (rewards, knobs, texts)."""
    own = {k: v for k, v in {"max_tokens": g.max_tokens, "max_turns": g.max_turns}.items() if v is not None}
    plain: dict[str, Any] = {"written": {}, "hooks": {}, "scaffold": {}, "start": None, "phases": ()}
    plain |= {"curriculum": Curriculum(), "replay": Replay(), "rewards": {component: 1.0} if component else {}}
    return protocol(task, recipe, g.knobs).model_copy(update=plain | own)


def component_of(state: RunState, g: GuardConfig) -> str:
    """A reward component of the guard's environment, for trainers that compose a reward; nobody is paid it."""
    described = state.environment.get("guards", {}).get(g.name, {})
    return next(iter((*(described.get("outcome") or ()), *(described.get("components") or ()))), "")


def evaluation(state: RunState, t: TrialFinished, g: GuardConfig) -> TrialFinished | None:
    """A policy's evaluation on a guard, None where there is none; IntegrityError where it is of another policy."""
    known = state.trials.get(keys.guard(t.trial, g.name))
    done = known.finished if known else None
    if done is None:
        return None
    if (done.branch, done.seed, done.policy_sha256) != (t.branch, t.seed, t.policy_sha256):
        raise IntegrityError(f"{done.trial} is an evaluation of another policy than that of {t.trial}")
    return done


def reading(
    state: RunState, g: GuardConfig, control: Sequence[TrialFinished], branch: Sequence[TrialFinished]
) -> GuardReading:
    """Base policy, control and branch on a guard, as far as they were evaluated."""
    sides = {"base": [state.base] if state.base else [], "control": control, "branch": branch}
    found = {k: [(t, evaluation(state, t, g)) for t in trials] for k, trials in sides.items()}
    return GuardReading(
        name=g.name,
        margin=g.margin,
        missing=tuple(t.trial for pairs in found.values() for t, done in pairs if done is None),
        **{k: [done for _, done in pairs if done is not None] for k, pairs in found.items()},
    )


def readings(task: TaskFile, state: RunState, b: Branch, control: Branch) -> tuple[GuardReading, ...]:
    """Of all guards, for a verdict."""
    return tuple(reading(state, g, control.complete, b.complete) for g in task.guard)


def certified_trainings(task: TaskFile, state: RunState, b: Branch, *, fresh: bool) -> list[TrialFinished]:
    """The trainings whose policies the certificate is about: fresh ones of a champion, the start's own."""
    if not fresh:
        return b.complete
    known = (state.trials.get(keys.training(b.branch, s)) for s in task.run.certify_seeds)
    done = [t.finished for t in known if t is not None and t.finished is not None]
    return [t for t in done if t.status == "complete"]


def rows(task: TaskFile, state: RunState, b: Branch, *, fresh: bool) -> tuple[GuardRow, ...]:
    """What the certificate says of the guards."""
    own = certified_trainings(task, state, b, fresh=fresh)
    return tuple(row(reading(state, g, (), own)) for g in task.guard)

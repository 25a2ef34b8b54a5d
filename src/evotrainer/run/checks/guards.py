"""Checks of `[[guard]]`: each environment opens and has the tasks, and its margin can be told from noise."""

from __future__ import annotations

import contextlib

from evotrainer.config.guards import GuardConfig
from evotrainer.envs.base import EnvironmentOfTrainers
from evotrainer.errors import ConfigError, EvoTrainerError, TaskSetError
from evotrainer.judge.guard_power import outlook
from evotrainer.run.checks.base import BeforeRun, Found


def guards(at: BeforeRun) -> Found:
    """Every guard can be evaluated; notes on those that settle nothing."""
    task = at.task
    if task.guard and (task.run.search_only or task.run.evaluate_only):
        yield "[[guard]] is asked before a promotion, and this run promotes nothing: it has no effect"
        return
    there = []
    for g in task.guard:
        try:
            there.append((g.name, _tasks(at, g), g.attempts, g.margin))
        except EvoTrainerError as e:
            yield type(e)(f"guard {g.name}: {e}")
    yield from outlook(there, max(task.judge.min_seeds, len(task.run.seeds)))


def _tasks(at: BeforeRun, g: GuardConfig) -> int:
    """Tasks that a guard reads; TaskSetError or ConfigError where it has none, or too few."""
    from evotrainer.envs import open_environment
    from evotrainer.trainers import check_trial

    task = at.task
    with contextlib.closing(open_environment(g.environment, accept_tier_e=task.sandbox.accept_tier_e)) as environment:
        there = dict(environment.describe()["splits"]).get(g.split) or 0
        if not there:
            raise TaskSetError(f"environment {environment.name} has no {g.split} tasks; set split to one that it has")
        if g.tasks is not None and g.tasks > there:
            raise ConfigError(f"tasks={g.tasks}, but its {g.split} split has {there}; lower it, or leave it out")
        if isinstance(environment, EnvironmentOfTrainers):
            environment.check_plays(task.trainer.name)
        if unknown := sorted(set(g.knobs) - set(environment.knobs)):
            known = ", ".join(environment.knobs) or "none"
            raise ConfigError(f"knob {unknown[0]} is unknown; environment {environment.name} has: {known}")
        if not at.lacks:
            check_trial(task.trainer.name, task.trainer.options, at.base, [task.recipe], environment)
    return g.tasks or there

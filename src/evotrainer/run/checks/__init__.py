"""Everything that is checked before a run spends anything, in the order in which it is asked.

A check is a function of `BeforeRun` in this folder, and a row of `CHECKS`. What is seen of the base policy's attempts,
before the trainings, is in `measured`.
"""

from __future__ import annotations

from evotrainer.envs.user_files import WATCH
from evotrainer.run.checks import context_length, environment, guards, parts, rewards, room, settings
from evotrainer.run.checks.base import BeforeRun, RunCheck, walk
from evotrainer.run.notifying import check_notify
from evotrainer.run.tracking import check_trackers

TRIES = "trying the environment's rewards, and measuring prompts as the policy reads them"

CHECKS = (
    # the place, and who answers
    RunCheck("folder", settings.folder),
    RunCheck("human", settings.human, of="any"),
    # the task file
    RunCheck("libraries", parts.libraries, of="any"),
    RunCheck("sizes", settings.sizes),
    RunCheck("places", settings.places),
    RunCheck("recipe", parts.carried_out, of="any"),
    RunCheck("lint", settings.recipe_warnings),
    RunCheck("shares", settings.shares),
    RunCheck("idle settings", settings.idle_settings),
    RunCheck("budget", settings.budget),
    RunCheck("prices", settings.prices, of="any"),
    # what the run is made of
    RunCheck("base name", parts.base_name, of="any"),
    RunCheck("agent", parts.agent, of="any"),
    RunCheck("reader", parts.reader, of="any"),
    RunCheck("searches", parts.searches, "agent", of="any"),
    RunCheck("listed changes", parts.listed_changes, "agent", of="any"),
    RunCheck("executor", parts.executor, of="any"),
    RunCheck("base", parts.base_policy, of="any", doing="looking for the base policy {task.policy.base}"),
    RunCheck("room", room.room, "base"),
    # the environment, opened
    RunCheck("environment", environment.opens, of="any", doing="opening the environment and reading its rows"),
    RunCheck("names", environment.names, "environment", of="any"),
    RunCheck("splits", environment.splits, "names", of="any"),
    RunCheck("pays", environment.pays, "splits"),
    RunCheck("turns", environment.turns, "pays"),
    RunCheck("counts", environment.counts, "pays"),
    RunCheck("prompts", environment.prompts, "counts"),
    RunCheck("draws", environment.draws, "prompts"),
    RunCheck("rewards", rewards.tried, "draws", doing=TRIES),
    RunCheck("context", context_length.context, "counts base", doing=TRIES),
    RunCheck("judged before", environment.judged_before, "splits", of="any"),
    RunCheck(
        "first trial",
        environment.first_trial,
        "splits base",
        of="any",
        doing="loading the libraries of the {task.trainer.name} trainer, and checking {task.policy.base} with them",
    ),
    RunCheck("guards", guards.guards, "environment", of="any", doing="opening the environments of guards"),
    RunCheck("skills", parts.skills),
    RunCheck("trackers", lambda at: check_trackers(at.task.tracking)),
    RunCheck("notify", lambda at: iter(check_notify(at.task.notify)), of="any"),
    RunCheck("cache", settings.cache),
)
"""The registry."""
FIRST = ("folder",)
"""Checks that end the walk where they refuse: whoever corrects these has to come back anyway."""


@WATCH.limited()
def check_run(at: BeforeRun) -> list[str]:
    """Make all checks; returns notes. Raises as `walk` does."""
    try:
        return walk(CHECKS, at, FIRST)
    finally:
        if at.opened is not None:
            at.opened.close()

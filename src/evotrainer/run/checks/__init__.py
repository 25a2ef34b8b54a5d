"""Everything that is checked before a run spends anything, in the order in which it is asked.

A check is a function of `BeforeRun` in this folder, and a row of `CHECKS`. What is seen of the base policy's attempts,
before the trainings, is in `measured`.
"""

from __future__ import annotations

from collections.abc import Sequence

from evotrainer.envs.user_files import WATCH
from evotrainer.run.checks import context_length, environment, parts, rewards, settings
from evotrainer.run.checks.base import BeforeRun, Check, walk

TRIES = "trying the environment's rewards, and measuring prompts as the policy reads them"

CHECKS = (
    # the place, and who answers: whoever corrects these has to come back anyway
    Check("folder", settings.folder),
    Check("human", settings.human, of="any"),
    # the task file
    Check("libraries", parts.libraries, of="any"),
    Check("sizes", settings.sizes),
    Check("places", settings.places),
    Check("recipe", parts.carried_out, of="any"),
    Check("lint", settings.recipe_warnings),
    Check("shares", settings.shares),
    Check("idle settings", settings.idle_settings),
    Check("budget", settings.budget),
    # what the run is made of
    Check("base name", parts.base_name, of="any"),
    Check("agent", parts.agent, of="any"),
    Check("reader", parts.reader, of="any"),
    Check("searches", parts.searches, "agent", of="any"),
    Check("listed changes", parts.listed_changes, "agent", of="any"),
    Check("executor", parts.executor, of="any"),
    Check("base", parts.base_policy, of="any", doing="looking for the base policy {task.policy.base}"),
    # the environment, opened
    Check("environment", environment.opens, of="any", doing="opening the environment and reading its rows"),
    Check("names", environment.names, "environment", of="any"),
    Check("splits", environment.splits, "names", of="any"),
    Check("pays", environment.pays, "splits"),
    Check("turns", environment.turns, "pays"),
    Check("counts", environment.counts, "pays"),
    Check("prompts", environment.prompts, "counts"),
    Check("draws", environment.draws, "prompts"),
    Check("rewards", rewards.tried, "draws", doing=TRIES),
    Check("context", context_length.context, "counts base", doing=TRIES),
    Check("judged before", environment.judged_before, "splits", of="any"),
    Check(
        "first trial",
        environment.first_trial,
        "splits base",
        of="any",
        doing="loading the libraries of the {task.trainer.name} trainer, and checking {task.policy.base} with them",
    ),
    Check("skills", parts.skills),
    Check("cache", settings.cache),
)
"""The registry."""
FIRST = ("folder", "human")
"""Checks that end the walk where they refuse."""


@WATCH.limited()
def check_run(at: BeforeRun, further: Sequence[Check] = ()) -> list[str]:
    """Make all checks, `further` ones last; returns notes. Raises as `walk` does."""
    try:
        return walk((*CHECKS, *further), at, FIRST)
    finally:
        if at.opened is not None:
            at.opened.close()

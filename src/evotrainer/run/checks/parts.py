"""Checks of what a run is made of: trainer, agent, reader, executor, base policy, skills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evotrainer.config.preflight import weights_sha256
from evotrainer.errors import ConfigError
from evotrainer.records.hub import looks_like_id
from evotrainer.run.agent import agent_of, reader_of
from evotrainer.run.checks.base import BeforeRun
from evotrainer.trainers import check_installed, check_recipes


def libraries(at: BeforeRun) -> None:
    """The trainer is known, and its libraries are installed."""
    check_installed(at.task.trainer.name)


def carried_out(at: BeforeRun) -> None:
    """The trainer can carry out the starting recipe and its own options."""
    trainer = at.task.trainer
    check_recipes(trainer.name, trainer.options, [at.task.recipe], at.task.run.sampler_dtype)


def base_name(at: BeforeRun) -> None:
    """The trainer can train what policy.base names, as far as the name tells."""
    from evotrainer.records.hub import parse_pinned
    from evotrainer.trainers.gguf import is_gguf

    base = at.task.policy.base
    if at.task.trainer.name != "embedded" or base == "warm-start" or base.startswith("builtin:") or is_gguf(base):
        return
    folder = Path(base).expanduser()
    if not looks_like_id(base) and not parse_pinned(base) and not (folder / "config.json").is_file():
        raise ConfigError(
            f"policy.base {base!r}: no config.json there; give a folder that `evotrainer base` wrote, a trial's "
            "policy/, a language model's folder, GGUF file or Hugging Face id, or warm-start"
        )


def agent(at: BeforeRun) -> None:
    """The agent can be made."""
    at.agent = agent_of(at.task)


def reader(at: BeforeRun) -> None:
    """Whoever reads rollouts can be asked."""
    reader_of(at.task)


def searches(at: BeforeRun) -> Iterator[str]:
    """The agent can search where the run only searches, with as few changes at once as the run allows."""
    from evotrainer.agents.base import Searcher

    if at.task.run.search_only and not isinstance(at.agent, Searcher):
        raise ConfigError(
            f"run.search_only makes search trainings, and agent {at.agent and at.agent.name} knows none; take "
            "run.agent=statistical"
        )
    if (most := getattr(at.agent, "most_changes", 0)) > at.task.run.changes:
        raise ConfigError(
            f"agent {at.agent and at.agent.name} changes up to {most} factors in a training, and "
            f"run.changes={at.task.run.changes}; set run.changes={most} and run.search_only=true"
        )
    if most == 1 < at.task.run.changes:
        yield f"run.changes={at.task.run.changes} has no effect: agent {at.task.run.agent} changes one factor at a time"


def listed_changes(at: BeforeRun) -> None:
    """Changes that the task file lists make recipes that the trainer can carry out."""
    from evotrainer.agents.fixed import FixedAgent

    if isinstance(at.agent, FixedAgent):
        at.children = at.agent.recipes(at.task.recipe)
    trainer = at.task.trainer
    check_recipes(trainer.name, trainer.options, at.children, at.task.run.sampler_dtype)


def executor(at: BeforeRun) -> None:
    """The executor can run such trials."""
    from evotrainer.executors import preflight_executor

    preflight_executor(at.task, list(at.children))


def base_policy(at: BeforeRun) -> None:
    """The base policy is there."""
    if not at.fetched and (base := at.base) is not None:
        weights_sha256(base)


def skills(at: BeforeRun) -> None:
    """The skills that a new run is given can be read; one that is taken up again has its own copy."""
    from evotrainer.run.skills import collect

    if at.task.run.skills:
        collect(at.task.run.skills)

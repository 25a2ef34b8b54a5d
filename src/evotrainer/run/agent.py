"""The agent of a run: one of ours by name, or one of the user's own; and who reads its rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import ConfigError, TaskSetError

if TYPE_CHECKING:
    from evotrainer.agents.base import Agent
    from evotrainer.agents.reader import ReaderCarrier
    from evotrainer.config.task import TaskFile

USER = "python:"
"""`run.agent = "python:FILE:NAME"`: a class or function of the user's, called with (seed, options)."""
OURS = ("statistical", "seat")
"""Agents that take the judge's smallest worthwhile effect for their own, unless told otherwise."""


def agent_of(task: TaskFile) -> Agent:
    """The agent that a task file names; ConfigError where there is none, or where the user's own cannot be made."""
    from evotrainer.agents import make_agent

    run = task.run
    if run.agent.startswith(USER):
        return _user_agent(run.agent, run.seed, run.agent_options)
    return make_agent(run.agent, run.seed, agent_options(task))


def reader_of(task: TaskFile) -> ReaderCarrier | None:
    """Who reads the rollouts of a run; ConfigError where nobody can be asked."""
    if task.harness.reader is None:
        return None
    from evotrainer.agents.reader import ReaderCarrier

    return ReaderCarrier(task.harness.reader, "harness.reader.")


def agent_options(task: TaskFile) -> dict[str, Any]:
    """The task file's options; the statistical agent takes the judge's smallest worthwhile effect for its own."""
    run = task.run
    own: dict[str, Any] = {}
    if run.agent in OURS:
        own["min_effect"] = task.judge.min_effect
    return {**own, **run.agent_options}


def _user_agent(spec: str, seed: int, options: dict[str, Any]) -> Agent:
    """What the user's Python file makes. It is trusted code: it runs in the run's process, with its rights."""
    from evotrainer.envs.user_files import load_module, raised

    file, _, name = spec.removeprefix(USER).rpartition(":")
    if not file or not name:
        raise ConfigError(f"run.agent {spec!r}: give python:FILE:NAME, e.g. python:./my_agent.py:MyAgent")
    try:
        module = load_module(Path(file))
    except TaskSetError as e:
        raise ConfigError(f"run.agent: {e}") from e
    make = getattr(module, name, None)
    if not callable(make):
        own = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
        raise ConfigError(f"run.agent: {file} has no {name}; it has: {', '.join(own) or 'no class or function'}")
    try:
        agent: Agent = make(seed, dict(options))
    except Exception as e:  # the user's own code
        raise ConfigError(f"run.agent: {name}(seed, options) of {file} raises {raised(e)}") from e
    if not callable(getattr(agent, "propose", None)) or not isinstance(getattr(agent, "name", None), str):
        raise ConfigError(
            f"run.agent: what {name} of {file} makes is no agent: it needs `name`, a str, and propose(briefing, tools)"
        )
    return agent

"""Pins a run's task file to its base policy and data, and opens the run folder for the steps of the loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.config.bases import resolve_base
from evotrainer.config.task import TaskFile
from evotrainer.run import task_sets
from evotrainer.run.agent import agent_of, reader_of
from evotrainer.run.context import Ask, RunContext
from evotrainer.run.observer import Observer, SilentObserver

if TYPE_CHECKING:
    from evotrainer.agents.base import Agent
    from evotrainer.executors import Executor, MakeExecutor
    from evotrainer.records.ledger import Ledger


def with_absolute_base(task: TaskFile) -> TaskFile:
    """The base policy's path made absolute, a Hugging Face id pinned to its commit: a resume finds the same weights."""
    from evotrainer.records.hub import pinned
    from evotrainer.trainers.gguf import SHORT, gguf_file, is_gguf

    base = resolve_base(task.policy.base)
    if base is None or task.policy.base.startswith("builtin:"):
        return task
    if is_gguf(task.policy.base):
        packaged = task.policy.base in SHORT or task.policy.base.startswith("pypi:")
        name = task.policy.base if packaged else str(gguf_file(task.policy.base))
    else:
        name = pinned(task.policy.base, base) or str(base)
    return task.model_copy(update={"policy": task.policy.model_copy(update={"base": name})})


def with_pinned_data(task: TaskFile) -> TaskFile:
    """A Hugging Face data set's revision as a commit, so that every trial and every resume reads the same rows."""
    from evotrainer.envs.data.hub import pin

    environment = pin(task.environment)
    return task if environment == task.environment else task.model_copy(update={"environment": environment})


@contextlib.contextmanager
def open_context(
    folder: Path,
    task: TaskFile,
    ledger: Ledger,
    *,
    agent: Agent | None = None,
    view: Observer | None = None,
    ask: Ask | None = None,
    executor: MakeExecutor | None = None,
    task_hash: str | None = None,
) -> Iterator[RunContext]:
    """A run folder for its steps, nothing of it walked yet; the executor is closed at the end."""
    from evotrainer.executors import make_executor
    from evotrainer.executors.cache import with_cache
    from evotrainer.run.checks.base import BeforeRun
    from evotrainer.run.checks.parts import searches

    def own(folder: Path, task: TaskFile) -> Executor:
        return with_cache(make_executor(folder, task), folder, task, (view or SilentObserver()).note)

    if agent:
        searches(BeforeRun(task, agent=agent))
    ctx = RunContext(
        folder=folder,
        task=task,
        task_hash=task_hash or task.hash,
        ledger=ledger,
        executor=(executor or own)(folder, task),
        agent=agent or agent_of(task),
        observer=view or SilentObserver(),
        ask=ask,
        reader=reader_of(task),
    )
    with contextlib.closing(ctx.executor):
        try:
            task_sets.take_keys(ctx)
            yield ctx
        finally:
            ctx.sealed.release()

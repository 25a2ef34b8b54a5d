"""Executors: where trials run. Importing this package loads no cluster library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evotrainer.config import TaskFile
    from evotrainer.executors.local import LocalExecutor


def make_executor(folder: Path, task: TaskFile) -> LocalExecutor:
    """The executor that a task asks for, for the run in `folder`; ConfigError for an unknown option."""
    from evotrainer.config import default_workers
    from evotrainer.errors import ConfigError
    from evotrainer.executors.local import LocalExecutor

    if task.executor.name == "local":
        if task.executor.options:
            names = ", ".join(task.executor.options)
            raise ConfigError(
                f"the local executor has no option {names}; run.workers and run.restarts are its settings"
            )
        return LocalExecutor(folder, task.run.workers or default_workers(), task.run.restarts)
    raise ConfigError(f"unknown executor {task.executor.name!r}")

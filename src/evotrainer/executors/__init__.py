"""Executors: where trials run. Importing this package loads no cluster library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from evotrainer.config import TaskFile
    from evotrainer.executors.spec import Heartbeat, TrialSpec
    from evotrainer.records.events import TrialFinished


class Executor(Protocol):
    """Runs trials and brings their results and files into the run folder."""

    def run(
        self,
        specs: Sequence[TrialSpec],
        on_progress: Callable[[list[tuple[TrialSpec, Heartbeat | None]]], None] = ...,
    ) -> Iterator[TrialFinished]:
        """Yield results as they come, finished ones first without running them again."""
        ...

    def forget(self, trial: str) -> None:
        """Take back the result of a failed trial that nothing recorded."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


def make_executor(folder: Path, task: TaskFile) -> Executor:
    """The executor that a task asks for, for the run in `folder`; ConfigError for an unknown option."""
    from evotrainer.executors.local import LocalExecutor

    check_executor(task)
    if task.executor.name == "ray":
        from evotrainer.executors.cluster import ClusterExecutor, parse_cluster_options
        from evotrainer.executors.ray import RayBackend

        return ClusterExecutor(folder, parse_cluster_options(task.executor.options), RayBackend(wants_gpu(task)))
    return LocalExecutor(folder, local_workers(task), task.run.restarts)


def local_workers(task: TaskFile) -> int:
    """Trials side by side on this machine: `run.workers`, else one per core; one where they would share a GPU."""
    from evotrainer.config import default_workers
    from evotrainer.executors.local import gpu_visible

    if task.run.workers:
        return task.run.workers
    return 1 if wants_gpu(task) and gpu_visible() else default_workers()


def wants_gpu(task: TaskFile) -> bool:
    """Whether the trainer takes a GPU where it sees one."""
    return task.trainer.name == "trl" and task.trainer.options.get("device") != "cpu"


def check_executor(task: TaskFile) -> None:
    """ConfigError for an unknown option, MissingDependencyError where the executor's library lacks; imports no library."""
    from importlib.util import find_spec

    from evotrainer.errors import ConfigError, MissingDependencyError

    if task.executor.name == "local":
        if task.executor.options:
            names = ", ".join(task.executor.options)
            raise ConfigError(
                f"the local executor has no option {names}; run.workers and run.restarts are its settings"
            )
        return
    from evotrainer.executors.cluster import parse_cluster_options

    options = parse_cluster_options(task.executor.options)
    if find_spec("ray") is None:
        raise MissingDependencyError(
            "executor.name=ray needs Ray, which is not installed; run: pip install 'evotrainer[ray]'"
        )
    if options.workers_per_trial > 1 and task.trainer.name == "embedded":
        raise ConfigError(
            f"executor.options.workers_per_trial={options.workers_per_trial}: the embedded trainer trains in one process; "
            "set it to 1, or trainer.name=trl"
        )

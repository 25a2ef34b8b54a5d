"""Executors: where trials run. Importing this package loads no cluster library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from evotrainer.registry import Registry

if TYPE_CHECKING:
    from evotrainer.config.task import TaskFile
    from evotrainer.executors.spec import Heartbeat, TrialSpec
    from evotrainer.records.events import TrialFinished
    from evotrainer.records.recipe import Recipe


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
        """Release what it holds."""
        ...


MakeExecutor = Callable[[Path, "TaskFile"], Executor]
"""(run folder, its task) -> what runs its trials."""


CheckExecutor = Callable[["TaskFile", Sequence["Recipe"]], None]
"""(task, recipes of branches that are known already): raises what cannot be kept, before anything is spent."""


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """A row of `EXECUTORS`."""

    make: MakeExecutor
    check: CheckExecutor


def _local(folder: Path, task: TaskFile) -> Executor:
    from evotrainer.executors.local import LocalExecutor

    return LocalExecutor(folder, local_workers(task), task.run.restarts)


def _check_local(task: TaskFile, children: Sequence[Recipe]) -> None:
    """ConfigError for any option, and for a GPU that this machine does not show."""
    from evotrainer.errors import ConfigError
    from evotrainer.executors.devices import gpu_visible

    if task.executor.options:
        names = ", ".join(task.executor.options)
        raise ConfigError(f"the local executor has no option {names}; run.workers and run.restarts are its settings")
    if needs_cuda(task) and not gpu_visible():
        raise ConfigError(
            "trainer.options.device=cuda, but this machine shows no GPU (no driver, "
            "or CUDA_VISIBLE_DEVICES hides it); set it to auto, "
            "or executor.name=ray with executor.options.address of a cluster that has GPUs"
        )


EXECUTORS: Registry[ExecutorSpec] = Registry(
    "executor",
    "executor.name",
    {"local": ExecutorSpec(_local, _check_local), "ray": "evotrainer.executors.ray.spec:SPEC"},
)
"""Name in the task file (`executor.name`) -> what makes it."""


def make_executor(folder: Path, task: TaskFile) -> Executor:
    """The executor that a task asks for, for the run in `folder`; ConfigError for an unknown option."""
    preflight_executor(task)
    return EXECUTORS[task.executor.name].make(folder, task)


def preflight_executor(task: TaskFile, children: Sequence[Recipe] = ()) -> None:
    """ConfigError for an option that is unknown or cannot be kept, MissingDependencyError where a library is missing.

    `children`: recipes of branches that are known already.
    """
    EXECUTORS[task.executor.name].check(task, children)


def local_workers(task: TaskFile) -> int:
    """Trials side by side on this machine: `run.workers`, else one per core; one where they would share a GPU."""
    from evotrainer.config.task import default_workers

    if task.run.workers:
        return task.run.workers
    return 1 if takes_gpu(task) else default_workers()


def takes_gpu(task: TaskFile) -> bool:
    """Whether its trainings run on a GPU of this machine."""
    from evotrainer.executors.devices import gpu_visible

    return wants_gpu(task) and gpu_visible()


def wants_gpu(task: TaskFile) -> bool:
    """Whether the trainer takes a GPU where it sees one; one that is not ours is taken to."""
    return task.trainer.name != "embedded" and task.trainer.options.get("device") != "cpu"


def gpus_of(task: TaskFile) -> float:
    """GPUs that each of its trials holds, as far as that is known before one runs."""
    from evotrainer.executors.devices import gpus_held

    if task.executor.name == "local":
        return gpus_held(wants_gpu(task))
    options = task.executor.options
    each = options.get("gpus", 1.0 if wants_gpu(task) else 0.0)
    return float(each) * float(options.get("workers_per_trial", 1))


def needs_cuda(task: TaskFile) -> bool:
    """Whether its trials cannot do without a GPU."""
    return task.trainer.name == "trl" and task.trainer.options.get("device") == "cuda"

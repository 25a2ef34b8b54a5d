"""Executors: where trials run. Importing this package loads no cluster library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

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


def make_executor(folder: Path, task: TaskFile) -> Executor:
    """The executor that a task asks for, for the run in `folder`; ConfigError for an unknown option."""
    from evotrainer.executors.local import LocalExecutor

    preflight_executor(task)
    if task.executor.name == "ray":
        from evotrainer.executors.ray.driver import ClusterExecutor
        from evotrainer.executors.ray.executor import RayBackend
        from evotrainer.executors.ray.options import parse_cluster_options

        return ClusterExecutor(folder, parse_cluster_options(task.executor.options), RayBackend(wants_gpu(task)))
    return LocalExecutor(folder, local_workers(task), task.run.restarts)


def local_workers(task: TaskFile) -> int:
    """Trials side by side on this machine: `run.workers`, else one per core; one where they would share a GPU."""
    from evotrainer.config.task import default_workers
    from evotrainer.executors.local import gpu_visible

    if task.run.workers:
        return task.run.workers
    return 1 if wants_gpu(task) and gpu_visible() else default_workers()


def wants_gpu(task: TaskFile) -> bool:
    """Whether the trainer takes a GPU where it sees one; one that is not ours is taken to."""
    return task.trainer.name != "embedded" and task.trainer.options.get("device") != "cpu"


def preflight_executor(task: TaskFile, children: Sequence[Recipe] = ()) -> None:
    """ConfigError for an option that is unknown or cannot be kept, MissingDependencyError where a library is missing.

    `children`: recipes of branches that are known already.
    Imports no library but, for `artifacts`, its fsspec file system.
    """
    from importlib.util import find_spec

    from evotrainer.errors import ConfigError, MissingDependencyError, install
    from evotrainer.executors.local import gpu_visible

    cuda = task.trainer.name == "trl" and task.trainer.options.get("device") == "cuda"
    if task.executor.name == "local":
        if task.executor.options:
            names = ", ".join(task.executor.options)
            raise ConfigError(
                f"the local executor has no option {names}; run.workers and run.restarts are its settings"
            )
        if cuda and not gpu_visible():
            raise ConfigError(
                "trainer.options.device=cuda, but this machine shows no GPU (no driver, "
                "or CUDA_VISIBLE_DEVICES hides it); set it to auto, "
                "or executor.name=ray with executor.options.address of a cluster that has GPUs"
            )
        return
    from evotrainer.executors.ray.options import parse_cluster_options

    options = parse_cluster_options(task.executor.options)
    if find_spec("ray") is None:
        raise MissingDependencyError(f"executor.name=ray needs Ray, which is not installed; run: {install('ray')}")
    if options.workers_per_trial > 1 and task.trainer.name == "embedded":
        raise ConfigError(
            f"executor.options.workers_per_trial={options.workers_per_trial}: "
            "the embedded trainer trains in one process; set it to 1, or trainer.name=trl"
        )
    if cuda and "gpus" in options.model_fields_set and not options.gpus:
        raise ConfigError(
            "trainer.options.device=cuda, but executor.options.gpus=0 gives trials no GPU; set gpus to 1, "
            "or device to auto"
        )
    workers = options.workers_per_trial
    for recipe in (r for x in (task.recipe, *children) for r in x.chain):
        if recipe.start is not None and workers > 1:
            raise ConfigError(
                f"recipe.start: executor.options.workers_per_trial={workers} processes train one recipe together; set "
                "it to 1, or start to base"
            )
        if recipe.prompts_per_step % workers:
            raise ConfigError(
                f"recipe.prompts_per_step={recipe.prompts_per_step} cannot be shared out among "
                f"executor.options.workers_per_trial={workers} processes; make it a multiple"
            )
    if options.artifacts:
        from evotrainer.executors.ray.artifacts import check_protocol

        check_protocol(options.artifacts)

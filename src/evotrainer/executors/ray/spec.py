"""The cluster's row of `executors.EXECUTORS`; importing it loads no cluster library."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from evotrainer.config.task import TaskFile
from evotrainer.errors import ConfigError, MissingDependencyError, install
from evotrainer.executors import Executor, ExecutorSpec, needs_cuda, wants_gpu
from evotrainer.executors.ray.options import parse_cluster_options
from evotrainer.records.recipe import Recipe


def make(folder: Path, task: TaskFile) -> Executor:
    """The executor of a run folder's trials."""
    from evotrainer.executors.ray.driver import ClusterExecutor
    from evotrainer.executors.ray.executor import RayBackend

    return ClusterExecutor(folder, parse_cluster_options(task.executor.options), RayBackend(wants_gpu(task)))


def check(task: TaskFile, children: Sequence[Recipe]) -> None:
    """ConfigError for an option that is unknown or cannot be kept, MissingDependencyError without Ray.
    Imports no library but, for `artifacts`, its fsspec file system."""
    options = parse_cluster_options(task.executor.options)
    if importlib.util.find_spec("ray") is None:
        raise MissingDependencyError(f"executor.name=ray needs Ray, which is not installed; run: {install('ray')}")
    if options.workers_per_trial > 1 and task.trainer.name == "embedded":
        raise ConfigError(
            f"executor.options.workers_per_trial={options.workers_per_trial}: "
            "the embedded trainer trains in one process; set it to 1, or trainer.name=trl"
        )
    if needs_cuda(task) and "gpus" in options.model_fields_set and not options.gpus:
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


SPEC = ExecutorSpec(make, check)

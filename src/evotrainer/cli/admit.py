"""`evotrainer admit`: is each task fit for use?"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evotrainer.cli._common import Overrides
from evotrainer.cli._progress import progress
from evotrainer.errors import ConfigError
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.envs.admission import AdmissionVerdict


def admit(
    task: Annotated[Path, typer.Argument(help="Task file (TOML) with a data set.")],
    overrides: Overrides = None,
    *,
    split: Annotated[str, typer.Option(help="Split to try.")] = "cert",
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many tasks; default: the whole split.")] = None,
) -> None:
    """Is each task of a data set fit for use? Of an issue of a repository the reference fix must pass, doing nothing
    must fail, cheating must fail; of a program one of the task's own solutions must pass.

    Cheats: tests rewritten, a conftest that passes everything, a replaced test runner, values equal to everything, ...
    Exit code 1 where a task is refused; the reasons are printed.

    Example: evotrainer admit tasks/code-data.toml environment.source=./problems.jsonl --limit 20
    """
    from evotrainer.config.load import load_task
    from evotrainer.envs import open_environment

    resolved = load_task(task, overrides or [])
    described = dict(resolved.environment)
    if "source" in described and described.get("name") in ("code", "swe"):
        described["admit"] = False  # tried here, with progress
    environment = open_environment(described, accept_tier_e=resolved.sandbox.accept_tier_e)
    try:
        report = _tried(environment, split, limit)
    finally:
        environment.close()
    print(report)
    if report.refused:
        raise typer.Exit(1)


def _tried(environment: Any, split: str, limit: int | None) -> Any:
    """Every instance with its fix, with nothing and with cheats; every program's task with its own solution and with
    nothing."""
    from evotrainer.envs.code.admission import admit_code
    from evotrainer.envs.code.env import CodeEnv
    from evotrainer.envs.code.task_list import ListSource
    from evotrainer.envs.swe.admission import admit as admit_repositories
    from evotrainer.envs.swe.instance_env import InstancesEnv

    programs = isinstance(environment, CodeEnv) and isinstance(environment.source, ListSource)
    if not programs and not isinstance(environment, InstancesEnv):
        raise ConfigError(
            f"environment {environment.name} has no instances to admit, nor programs with solutions; admission is for "
            "name = code or swe with a source"
        )
    tasks = list(environment.tasks(split))[:limit]
    with progress() as say:
        done = count(1)

        def show(v: AdmissionVerdict) -> None:
            say(f"admission of {split}", next(done), len(tasks))

        if isinstance(environment, CodeEnv):
            return admit_code(environment, tasks, progress=show)
        return admit_repositories(tasks, environment.instances, progress=show)

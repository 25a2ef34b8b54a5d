"""`evotrainer run`: runs a task file from the base policy to the report."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evotrainer.cli._common import OpenReport, Overrides, Plain, TaskPath, WithPage
from evotrainer.cli._page import page_beside
from evotrainer.cli._running import ask, finish, live_view
from evotrainer.records.output import print
from evotrainer.records.text import counted

if TYPE_CHECKING:
    from evotrainer.config.task import TaskFile


def run(
    task: TaskPath,
    overrides: Overrides = None,
    *,
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/<task>-<time>.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and print the resolved task file; run nothing.")
    ] = False,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate", help="Say what the run will cost: trainings, time, disk; trains three steps to measure one."
        ),
    ] = False,
    step_s: Annotated[
        float | None, typer.Option(help="With --estimate: seconds of a training step; nothing is measured then.")
    ] = None,
    skills: Annotated[
        list[str] | None,
        typer.Option(
            help="Library of skills for the agent: a folder, a run folder or builtin. Repeatable; sets run.skills."
        ),
    ] = None,
    harness: Annotated[
        str | None,
        typer.Option(help="Harness to begin with: default, or minimal (score layer only); sets run.harness."),
    ] = None,
    open_report: OpenReport = False,
    plain: Plain = False,
    ui: WithPage = False,
) -> None:
    """Train, evolve and certify a policy, and write a report.

    Trainings that an earlier run of yours made are taken from the cache (evotrainer cache); run.cache=off trains them.

    Every key of a task file: docs/task-file.md; every factor of its recipe: docs/recipe.md. Limits in dollars or GPU
    time: docs/money.md; what a gain must not cost elsewhere, [[guard]]: docs/guards.md.

    Example: evotrainer run tasks/code.toml recipe.lr=1e-4 run.rounds=2 --out runs/mine
    """
    from evotrainer.config.load import load_task
    from evotrainer.run.starting import Caller, begin

    asked = [f"run.skills={json.dumps(skills)}"] if skills else []
    asked += [f"run.harness={harness}"] if harness else []
    resolved = load_task(task, [*(overrides or []), *asked])
    folder = out or Path("runs") / f"{resolved.task.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    if dry_run:
        _print_checked(resolved, _check(resolved, folder))
        return
    if estimate or step_s is not None:
        from evotrainer.studies.estimate import estimate as measured
        from evotrainer.studies.estimate import estimate_lines

        _check(resolved)
        print("\n".join(estimate_lines(measured(resolved, step_s))))
        return
    with page_beside(folder, ui), live_view(folder, plain) as view:
        begin(resolved, folder, Caller(view, ask(view)))
    finish(folder, open_report)


def _print_checked(task: TaskFile, notes: list[str]) -> None:
    """The resolved task file, and that it holds."""
    print(task.to_toml().rstrip())
    print(f"# ok: it can be run as it stands; nothing was run. Recipe {task.recipe.hash}, task {task.hash}")
    if notes:
        print(f"# {counted(len(notes), 'note')} on stderr, before the task file")


def _check(task: TaskFile, folder: Path | None = None) -> list[str]:
    """Refuse what a run of the task, in the folder, would refuse before it trains; print and return its notes."""
    from evotrainer.run.checks import check_run
    from evotrainer.run.checks.base import BeforeRun

    notes = check_run(BeforeRun(task, True, folder, ask(None) is not None, dry=True))
    for note in notes:
        print(f"evotrainer: note: {note}", file=sys.stderr)
    return notes

"""`evotrainer skills compare`: runs with and without skills."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from evotrainer.cli._common import Overrides, Plain, TaskPath, console
from evotrainer.records.output import print


def skills_compare(
    task: TaskPath,
    overrides: Overrides = None,
    *,
    skills: Annotated[list[str], typer.Option(help="Library of the arm with skills, repeatable.")],
    out: Annotated[Path, typer.Option(help="Folder for all runs and the results; called again, it goes on.")],
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of runs, each with seeds of its own.")] = 3,
    plain: Plain = False,
) -> None:
    """Do skills help? The same task, seeds and budget with and without them; resumable.

    Example: evotrainer skills compare tasks/math.toml --skills skills/ --out compare/ --repeats 5
    """
    from evotrainer.studies import skills_ab
    from evotrainer.views.terminal import LiveView

    def watch(folder: Path) -> Any:
        return LiveView(folder, console(stderr=True), plain=plain)

    done = skills_ab.compare(task, overrides or [], skills, out, repeats, watch)
    print(skills_ab.render(done).rstrip())
    print(f"results: {out / 'results.md'}")

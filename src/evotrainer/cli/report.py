"""`evotrainer report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._common import RunFolder, open_page
from evotrainer.records.output import print


def report(
    folder: RunFolder,
    *,
    out: Annotated[Path | None, typer.Option(help="Where to write; default RUN/report.html.")] = None,
    open_report: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Write the run's report: one HTML file that opens offline.

    Example: evotrainer report runs/mine --open
    """
    from evotrainer import api

    path = api.open_run(folder).report(out)
    print(f"report: {path}")
    if open_report:
        open_page(path)

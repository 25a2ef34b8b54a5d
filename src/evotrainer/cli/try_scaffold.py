"""`evotrainer try-scaffold`: a text of one's own in a slot of a run's environment, through the loop's checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._common import FOUND, AsJson, RunFolder
from evotrainer.records.output import print


def try_scaffold(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Text that is to stand in the slot.")],
    folder: RunFolder,
    *,
    slot: Annotated[str, typer.Option(help="Slot of the run's environment: system, prompt, tool_<name>, ...")],
    branch: Annotated[
        str | None, typer.Option(help="Branch beside whose texts it stands; default: the champion.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Would this text around the tasks (system prompt, tool description, format of observations) be trained with? The
    checks that the loop makes of an agent's.

    It is compared with the policy's context, and with the tasks that policies are evaluated on. Exit code 10 where a
    check ends it; the label says which.

    Example: evotrainer try-scaffold prompt.txt runs/mine --slot system
    """
    from dataclasses import asdict

    from evotrainer import api
    from evotrainer.studies.scaffold import read_text, text_lines, try_text

    tried = try_text(api.open_run(folder), slot, read_text(file), branch)
    print(json.dumps(asdict(tried), indent=1) if as_json else "\n".join([*text_lines(tried), f"  {tried.change}"]))
    if tried.label:
        raise typer.Exit(FOUND)

"""`evotrainer verl setup`: verl's own environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._common import AsJson, console
from evotrainer.records.output import print


def verl_setup(
    *,
    venv: Annotated[Path | None, typer.Option(help="Environment to make or complete; default: .venv-verl.")] = None,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Install what training needs, too: vLLM and its own PyTorch.")
    ] = False,
    python: Annotated[
        Path | None, typer.Option(help="Python to make it with (3.11 or 3.12); default: this one.")
    ] = None,
    task: Annotated[Path | None, typer.Option(help="Task file; adds what its rewards need.")] = None,
    pip: Annotated[
        list[str] | None, typer.Option(help="Argument for pip, repeatable, e.g. --pip=--index-url=URL.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make verl's own virtual environment. Without --gpu it can render and validate, not train.

    Example: evotrainer verl setup --venv .venv-verl
    """
    from evotrainer.extras.verl import venv as environments

    extra: list[str] = []
    if task is not None:
        from evotrainer.config.load import load_task

        extra = environments.extras_of(str(load_task(task).environment.get("name", "")))
    folder = venv or Path(environments.FOLDER)
    err = console(stderr=True)
    with err.status("setting up verl") as status:

        def say(line: str) -> None:
            status.update(line[:100])
            if not err.is_terminal:
                err.print(line, markup=False)

        record = environments.setup(folder, gpu=gpu, python=python, extra=extra, pip=pip or [], say=say)
    if as_json:
        print(json.dumps(record, indent=1))
        return
    have = ", ".join(f"{n} {v}" for n, v in record["versions"].items() if v)
    own = f"EVOTRAINER_VERL_PYTHON={folder / 'bin' / 'python'}"
    print(f"{folder}: {have}; {record['megabytes']:,} MB, {record['seconds']:.0f} s")
    print(f"use it with --venv {folder}, or {own} (.venv-verl is found by itself)")

"""`evotrainer verl validate`: does verl accept what was rendered?"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from evotrainer.cli._common import AsJson, VerlFolder, VerlVenv, console
from evotrainer.errors import ConfigError
from evotrainer.records.output import print
from evotrainer.records.text import counted


def verl_validate(
    folder: VerlFolder,
    *,
    venv: VerlVenv = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="As if with so many GPUs per node.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="As if with so many nodes.")] = None,
    as_json: AsJson = False,
) -> None:
    """Let verl compose and validate the configuration and load the plug-ins. Needs no GPU.

    Example: evotrainer verl validate runs/verl --gpus 8 --nodes 2
    """
    from evotrainer.extras.verl.validate import demand_valid, validate
    from evotrainer.extras.verl.venv import find

    with console(stderr=True).status("verl composes and validates the configuration"):
        v = validate(folder, find(venv), gpus, nodes)
    if as_json:
        print(json.dumps({**asdict(v), "findings": [asdict(f) for f in v.findings]}, indent=1))
        if not v.ok:
            raise typer.Exit(ConfigError.exit_code)
        return
    for notice in v.notices:
        print(notice)
    demand_valid(v)
    took = f"{v.seconds:.0f} s, no GPU needed"
    print(
        f"valid: verl {v.verl} accepts the configuration for {counted(v.gpus, 'GPU')} and loads the plug-ins ({took})"
    )

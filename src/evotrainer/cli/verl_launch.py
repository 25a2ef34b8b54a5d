"""`evotrainer verl launch`: a rendered training, started or resumed."""

from __future__ import annotations

from typing import Annotated

import typer

from evotrainer.cli._common import VerlFolder, VerlVenv
from evotrainer.cli.verl_tail import verl_tail
from evotrainer.records.output import print


def verl_launch(
    folder: VerlFolder,
    *,
    venv: VerlVenv = None,
    ray_address: Annotated[
        str | None,
        typer.Option(envvar="RAY_ADDRESS", help="Ray cluster to train on, e.g. 10.0.0.1:6379; default: this machine."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the training ends.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Launch even if it was not validated.")] = False,
) -> None:
    """Train, or resume from the last checkpoint. Needs GPUs; verl keeps running when this command ends.

    Example: evotrainer verl launch runs/verl --ray-address 10.0.0.1:6379
    """
    from evotrainer.extras.verl.launch import launch
    from evotrainer.extras.verl.venv import find

    a = launch(folder, find(venv), ray_address=ray_address, force=force)
    how = f"resumes after step {a.resumed_from}" if a.resumed_from else "starts"
    print(f"attempt {a.number} {how}: process {a.pid}, log {a.log(folder)}")
    if wait:
        verl_tail(folder, follow=True)
    else:
        follow, stop = f"evotrainer verl tail {folder} --follow", f"evotrainer verl stop {folder}"
        print(f"it goes on without this command; follow it: {follow}; end it: {stop}")

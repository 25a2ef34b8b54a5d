"""`evotrainer verl tail`: metrics of a verl training, step by step."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from evotrainer.cli._common import VerlFolder
from evotrainer.records.output import print


def verl_tail(
    folder: VerlFolder,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the training ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a step.")] = False,
) -> None:
    """Print metrics step by step; fails if a resumed training did not continue at its last step.

    Example: evotrainer verl tail runs/verl --follow
    """
    from evotrainer.extras.verl import tail
    from evotrainer.extras.verl.folder import read_manifest
    from evotrainer.extras.verl.scoring import lost

    read_manifest(folder)
    room = tail.response_room(folder)
    for line in tail.follow(folder) if follow else tail.lines(folder):
        if as_json:
            print(json.dumps({"attempt": line.attempt, "step": line.step, "metrics": line.values}), flush=True)
        else:
            print(tail.shown(line, room), flush=True)
    trained = tail.check_advance(folder)
    if as_json:
        return
    done = ", ".join(f"attempt {n}: {k}" for n, k in trained.items())
    print(f"{tail.verdict(folder)}; steps trained: {done or 'none'}")
    without, every = lost(folder)
    if without:
        where = folder / "evidence"
        print(f"{without:,} of {every:,} rollouts were lost to faults and left out of their groups; see {where}")

"""`evotrainer show`: one branch, search training, trial or rollout."""

from __future__ import annotations

from typing import Annotated

import typer

from evotrainer.cli._common import RunFolder, console


def show(
    folder: RunFolder,
    what: Annotated[
        str, typer.Argument(help="Branch (b1), search training (p1), trial (b1-s2) or rollout id (or its beginning).")
    ],
) -> None:
    """One branch, trial or rollout in full.

    Example: evotrainer show runs/mine b1
    """
    from evotrainer import api
    from evotrainer.views import terminal

    events = api.open_run(folder).events()
    opened = {e.body.branch for e in events if e.kind == "branch"}
    searched = {p.probe for e in events if e.kind == "probes" for p in e.body.probes}
    if what in opened | searched:
        console().print(terminal.render_branch(folder, what))
    elif any(e.kind == "intended" and e.body.trial == what for e in events):
        console().print(terminal.render_trial(folder, what))
    else:
        console().print(terminal.render_rollout(folder, what))

"""`evotrainer show`: one branch, search training, trial or rollout."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from evotrainer.cli._common import AsJson, RunFolder, console
from evotrainer.records.output import print


def show(
    folder: RunFolder,
    what: Annotated[
        str | None,
        typer.Argument(
            help="Branch (b1), search training (p1), trial (b1-s2) or rollout id (or its beginning); "
            "default: the champion."
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """One branch, trial or rollout in full; without a name the champion.

    Example: evotrainer show runs/mine b1
    """
    from evotrainer import api
    from evotrainer.projections.branches import BASE
    from evotrainer.views import folder as views

    run = api.open_run(folder)
    events = run.events()
    what = what or run.champion or BASE
    if as_json:
        from evotrainer.views.plain_data import shown_json

        print(json.dumps(shown_json(folder, what), indent=1))
        return
    opened = {e.body.branch for e in events if e.kind == "branch"}
    searched = {p.probe for e in events if e.kind == "probes" for p in e.body.probes}
    if what in opened | searched:
        console().print(views.render_branch(folder, what))
    elif any(e.kind == "intended" and e.body.trial == what for e in events):
        console().print(views.render_trial(folder, what))
    else:
        console().print(views.render_rollout(folder, what))

"""`evotrainer cases`: what a run remembers of what it tried."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from evotrainer.cli._common import AsJson, RunFolder, console
from evotrainer.records.output import print


def cases(
    folder: RunFolder,
    *,
    trials: Annotated[
        bool,
        typer.Option(
            "--trials", help="Show every trial: who asked for it, why, from what, expected, measured, and its label."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what was diagnosed, tried and expected, and what happened; with --trials every trial, search trainings and
    proposals that were not trained included, each with a label of what became of it.

    Example: evotrainer cases runs/mine --trials
    """
    from evotrainer import api
    from evotrainer.projections import history
    from evotrainer.projections.state import RunState
    from evotrainer.projections.trials import labelled

    events = api.open_run(folder).events()
    if as_json:
        found = history.cases(events)
        rows = [asdict(t) for t in labelled(events)] if trials else [c.model_dump(mode="json") for c in found]
        print(json.dumps(rows, indent=1))
        return
    from evotrainer.views.history import render_cases
    from evotrainer.views.trials import render_trials

    shown = render_trials(labelled(events)) if trials else render_cases(history.cases(events), RunState.of(events))
    console().print(shown)

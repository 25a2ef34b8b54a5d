"""`evotrainer cases`: what a run remembers of what it tried."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evotrainer.cli._common import AsJson, RunFolder, console
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.records.chain import Event


def cases(
    folder: RunFolder,
    *,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace", help="Show every proposal: vetoed, refused, trained or only considered, with the reason."
        ),
    ] = False,
    trials: Annotated[
        bool,
        typer.Option(
            "--trials", help="Show every trial: who asked for it, why, from what, expected, measured, and its label."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what was diagnosed, tried and expected, and what happened; with --trace every proposal, with --trials every
    trial, search trainings included, each with a label of what became of it.

    Example: evotrainer cases runs/mine --trials
    """
    from evotrainer import api
    from evotrainer.projections import history

    events = api.open_run(folder).events()
    if trials:
        _show_trials(events, as_json)
        return
    if as_json:
        rows: list[Any] = (
            [_plain(asdict(t)) for t in history.trace(events)]
            if trace
            else [c.model_dump(mode="json") for c in history.cases(events)]
        )
        print(json.dumps(rows, indent=1))
        return
    from evotrainer.projections.state import RunState
    from evotrainer.views.history import render_cases, render_trace

    console().print(
        render_trace(history.trace(events)) if trace else render_cases(history.cases(events), RunState.of(events))
    )


def _show_trials(events: Sequence[Event], as_json: bool) -> None:
    from evotrainer.projections.trials import labelled

    rows = labelled(events)
    if as_json:
        print(json.dumps([asdict(t) for t in rows], indent=1))
        return
    from evotrainer.views.trials import render_trials

    console().print(render_trials(rows))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A trace's row with its forecast as plain data."""
    return {k: v.model_dump(mode="json") if hasattr(v, "model_dump") else v for k, v in row.items()}

"""`evotrainer forecasts`: whether agents' expectations came true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._common import AsJson, console
from evotrainer.records.output import print


def forecasts(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; their forecasts are pooled.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Score each agent's forecasts: interval coverage, calibration of promotion chances, proper scoring rules.

    Example: evotrainer forecasts runs/*
    """
    from evotrainer import api
    from evotrainer.projections.forecasts import forecasts as read
    from evotrainer.projections.forecasts import score

    rows = [r for f in runs for r in read(api.open_run(f).events(), f.name)]
    scores = score(rows)
    if as_json:
        values = {
            "scores": [s.model_dump(mode="json") for s in scores],
            "branches": [r.model_dump(mode="json") for r in rows],
        }
        print(json.dumps(values, indent=1))
        return
    if not rows:
        print("no judged branch carries a forecast; the statistical agent gives one with each proposal")
        return
    from evotrainer.views.history import render_scores

    for s in scores:
        console().print(render_scores(s))

"""`cases` and `forecasts`: what runs remember, and whether their agents' expectations came true."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evotrainer.commands.common import console
from evotrainer.records.output import print


def cases(folder: Path, *, trace: bool, as_json: bool) -> None:
    """The run's cases, or its whole search trace."""
    from evotrainer import api
    from evotrainer.projections.history import cases as read_cases
    from evotrainer.projections.history import trace as read_trace

    events = api.open_run(folder).events()
    if as_json:
        rows: list[Any] = (
            [_plain(asdict(t)) for t in read_trace(events)]
            if trace
            else [c.model_dump(mode="json") for c in read_cases(events)]
        )
        print(json.dumps(rows, indent=1))
        return
    from evotrainer.views.recall import render_cases, render_trace

    console().print(render_trace(read_trace(events)) if trace else render_cases(read_cases(events)))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A trace's row with its forecast as plain data."""
    return {k: v.model_dump(mode="json") if hasattr(v, "model_dump") else v for k, v in row.items()}


def forecasts(folders: Sequence[Path], *, as_json: bool) -> None:
    """Scores of each agent's forecasts, pooled over runs."""
    from evotrainer import api
    from evotrainer.projections.forecasts import forecasts as read
    from evotrainer.projections.forecasts import score

    rows = [r for f in folders for r in read(api.open_run(f).events(), f.name)]
    scores = score(rows)
    if as_json:
        told = {
            "scores": [s.model_dump(mode="json") for s in scores],
            "branches": [r.model_dump(mode="json") for r in rows],
        }
        print(json.dumps(told, indent=1))
        return
    if not rows:
        print("no judged branch carries a forecast; the statistical agent gives one with each proposal")
        return
    from evotrainer.views.recall import render_scores

    for s in scores:
        console().print(render_scores(s))

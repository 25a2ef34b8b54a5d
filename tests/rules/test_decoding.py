"""`rules.certificate`: how each policy decodes best is chosen on search, from readings that exist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from evotrainer import api
from evotrainer.projections.state import RunState
from evotrainer.records.events import SplitScore
from evotrainer.rules.certificate import decoding
from tests.leaky_task import HONEST
from tests.leaky_task import TASK as TASK
from tests.leaky_task import finish as finish
from tests.paper import Paper


def reread(run: api.Run, change: Callable[[SplitScore], dict[str, Any]], **opened: Any) -> RunState:
    """The run's state, had the trainings of b1 scored otherwise, or had it been begun otherwise."""
    out = []
    for e in run.events():
        if e.kind == "finished" and e.body.branch == "b1":
            scores = tuple(s.model_copy(update=change(s)) for s in e.body.scores)
            e = replace(e, body=e.body.model_copy(update={"scores": scores}))
        if e.kind == "run":
            e = replace(e, body=e.body.model_copy(update=opened))
        out.append(e)
    return RunState.of(out)


def ahead(by: float, split: str) -> Callable[[SplitScore], dict[str, Any]]:
    return lambda s: {"greedy": s.score + by} if s.split == split and s.score is not None else {}


def test_what_scored_higher_on_search_is_chosen(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", [HONEST])
    assert decoding(reread(run, ahead(0.1, "search")), "b1") == "greedy"
    assert decoding(reread(run, ahead(-0.1, "search")), "b1") == "sampled"
    for state in (run.state, reread(run, ahead(0.1, "gate"))):
        assert [decoding(state, b) for b in ("base", "b0", "b1")] == ["sampled"] * 3, "equal on search"


def test_nothing_is_chosen_without_both_readings(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", [HONEST])
    state = reread(run, lambda s: {"greedy": None, "greedy_per_task": {}})
    assert decoding(state, "b1") is None and decoding(state, "b0") == "sampled"


def test_the_certificate_has_it_and_verifies(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", [HONEST])
    cert = run.state.certified
    assert cert is not None and {r.decoding for r in cert.rows} == {"sampled"}
    assert set(cert.chosen) == set(cert.comparisons)
    assert not [p for p in run.verify().problems if p.area == "certified"]

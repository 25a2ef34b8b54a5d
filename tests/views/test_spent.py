"""What an unfinished run has spent, as `status` tells it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from evotrainer.projections.budget import Budget
from evotrainer.records.events import Resumed
from evotrainer.records.ledger import Ledger
from evotrainer.views.fold import _by_now, view_of


def test_an_unfinished_run_counts_running_trials_and_the_whole_time(killed_run: Path) -> None:
    with Ledger.open(killed_run / "ledger.db", readonly=True) as ledger:
        events = list(ledger.events())
    beats = {"b1-s1": {"cpu_s": 21.5}}
    (intended,) = [e for e in events if e.kind == "intended" and e.body.trial == "b1-s1"]
    ended = [e for e in events if e.kind == "finished"][-1]
    since = max(datetime.fromisoformat(e.time).timestamp() for e in (intended, ended))
    settled = Budget.from_events(events, {}).spent
    now = since + 100
    spent = _by_now(view_of(events, beats), events, now)
    assert spent["wall_s"] == settled["wall_s"] + 100
    assert spent["cpu_s"] == settled["cpu_s"] + 21.5


def test_the_time_that_a_run_stood_still_is_not_counted(killed_run: Path) -> None:
    with Ledger.open(killed_run / "ledger.db", readonly=True) as ledger:
        events = list(ledger.events())
    last = datetime.fromisoformat(events[-1].time)
    body = Resumed(n=1, overrides=())
    events.append(replace(events[-1], kind="resumed", body=body, time=(last + timedelta(days=1)).isoformat()))
    spent = _by_now(
        view_of(events, {"b1-s1": {"cpu_s": 1.0}}), events, (last + timedelta(days=1, seconds=10)).timestamp()
    )
    assert spent["wall_s"] == Budget.from_events(events, {}).spent["wall_s"] + 10

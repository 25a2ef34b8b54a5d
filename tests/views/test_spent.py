"""What an unfinished run has spent, as `status` tells it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from evotrainer.projections.budget import Budget
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

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
    session = now - datetime.fromisoformat(events[0].time).timestamp()
    assert spent["wall_s"] == max(settled["wall_s"] + 100, session)
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


def test_an_unfinished_run_took_as_long_as_it_will_have_when_it_closes(killed_run: Path) -> None:
    """Not only the time in which a trial ran: the event that closes it, and the live view, count the whole session."""
    with Ledger.open(killed_run / "ledger.db", readonly=True) as ledger:
        events = list(ledger.events())
    now = datetime.fromisoformat(events[0].time).timestamp() + 10_000
    assert _by_now(view_of(events, {}), events, now)["wall_s"] == 10_000
    assert _by_now(view_of([], {}), [], now)["wall_s"] == 0

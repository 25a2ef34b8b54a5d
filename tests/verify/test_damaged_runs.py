"""`verify` over a real run: silent when all is true, and naming what was changed in it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from evotrainer import api
from evotrainer.cli.verify import verify
from evotrainer.errors import IntegrityError
from tests.paper import rejudged

pytestmark = pytest.mark.xdist_group("loop")


def test_everything_recorded_holds(finished: api.Run) -> None:
    report = finished.verify()
    assert report.ok, report.problems
    assert report.checked["rollouts"] > 500


def test_every_verdict_follows_from_the_ledger(finished: api.Run) -> None:
    assert finished.verdicts
    for v in finished.verdicts:
        assert rejudged(finished, v.branch).holds


def test_a_changed_event_is_found(copy: Callable[[], api.Run]) -> None:
    run = copy()
    db = sqlite3.connect(run.folder / "ledger.db")
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='trigger'").fetchall():
        db.execute(f'DROP TRIGGER "{name}"')
    db.execute("UPDATE event SET body = replace(body, '\"reject\"', '\"promote\"') WHERE kind = 'judged'")
    db.execute("UPDATE event SET body = replace(body, '\"cpu_s\":', '\"cpu_s\": 1') WHERE kind = 'closed'")
    db.commit()
    db.close()
    with pytest.raises(IntegrityError):
        verify(run.folder)


def test_a_changed_policy_is_found(copy: Callable[[], api.Run]) -> None:
    run = copy()
    weights = run.folder / "trials" / "b0-s1" / "policy" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 1
    weights.write_bytes(data)
    assert any("b0-s1" in p.message for p in run.verify().problems)


def test_a_damaged_rollout_part_is_named(copy: Callable[[], api.Run]) -> None:
    run = copy()
    part = next((run.folder / "rollouts" / "b0-s2").glob("*.parquet"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 0xFF
    part.write_bytes(data)
    assert any(part.name in p.message for p in run.verify().problems)

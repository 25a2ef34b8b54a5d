"""`verify` over a real run: silent when all is true, and naming what was changed in it."""

from __future__ import annotations

import shutil
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
        assert not rejudged(finished, v.branch)


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


def test_the_copies_of_the_grading_code_are_compared(copy: Callable[[], api.Run]) -> None:
    run = copy()
    (kept,) = (run.folder / "environment").glob("*/environment.py")
    place, text = kept.relative_to(run.folder).as_posix(), kept.read_text(encoding="utf-8")
    kept.write_text(text + "\n", encoding="utf-8")
    (kept.parent / "more.py").touch()
    said = [p.message for p in run.verify().problems]
    assert len(said) == 2 and said[0].startswith(f"{place} does not match the SHA-256")
    assert "more.py is not in the ledger" in said[1]
    shutil.rmtree(run.folder / "environment")
    (problem,) = run.verify().problems
    assert problem.area == "environment" and problem.message.startswith(f"{place}, the run's copy of a file")


def test_what_no_part_of_a_run_makes_is_noted(copy: Callable[[], api.Run]) -> None:
    run = copy()
    before = run.verify().notes
    (run.folder / "loot").mkdir()
    report = run.verify()
    assert report.ok and set(report.notes) - set(before) == {
        "loot is no part of a run: nothing reads it, and it is not checked"
    }


def test_a_byte_of_the_ledger_gives_no_problems_that_only_follow_from_it(
    copy: Callable[[], api.Run], capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy()
    ledger = run.folder / "ledger.db"
    data = bytearray(ledger.read_bytes())
    data[data.find(b'"status":"complete"') + 12] ^= 1
    ledger.write_bytes(data)
    for more in ("-shm", "-wal"):
        ledger.with_name(f"ledger.db{more}").unlink(missing_ok=True)
    part = next((run.folder / "rollouts" / "b0-s2").glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(IntegrityError):
        verify(run.folder)
    out = capsys.readouterr().out
    failed = [x for x in out.splitlines() if x.startswith("[FAIL]")]
    own, others = failed[:3], failed[3:]
    assert all("ledger" in x for x in own) and others and all(f"b0-s2/{part.name}" in x for x in others), failed
    assert "nothing that rests on its events was checked" in out

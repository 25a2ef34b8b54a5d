"""The head file and the checksum beside a ledger: cut ends, older copies and changed bytes are recognised."""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.coevolution import tampering

from evotrainer.errors import ConfigError, IntegrityError, StoreError
from evotrainer.records import head
from evotrainer.records.events import Resumed
from evotrainer.records.ledger import Ledger
from evotrainer.verify.chain_and_files import verify_run
from tests.small_records import RECIPE, intended, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed ledger of five events."""
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        ledger.append("branch", "b0/opened", opened("b0", None, RECIPE))
        for n in (1, 2, 3):
            ledger.append("intended", f"b0-s{n}/intended", intended(f"b0-s{n}"))
        ledger.append("resumed", "resumed/1", Resumed(n=1))
    return tmp_path / "ledger.db"


def problems(path: Path) -> str:
    """What `verify` says of a ledger, or of opening it."""
    try:
        with Ledger.open(path, readonly=True) as ledger:
            return "\n".join(ledger.verify())
    except StoreError as e:
        return str(e)


def test_the_head_follows_every_event_and_the_checksum_is_of_the_closed_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path, create=True) as ledger:
        assert head.read_head(path) == ledger.head
        for n in (1, 2):
            event = ledger.append("resumed", f"resumed/{n}", Resumed(n=n))
            assert head.read_head(path) == (n, event.hash) == ledger.head
            assert head.closed_checksum(path) is None, "an open ledger has no checksum"
            assert ledger.verify() == []
    assert subprocess.run(["sha256sum", "-c", "ledger.db.sha256"], cwd=tmp_path, capture_output=True).returncode == 0
    assert problems(path) == ""
    before = head.note_path(path).read_bytes()
    with Ledger.open(path) as ledger:
        assert ledger.head[0] == 2
    assert head.note_path(path).read_bytes() == before, "nothing was written"


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_events_cut_off_the_end_are_found_and_not_written_behind(path: Path, cut: int) -> None:
    tampering.edited(path.parent, lambda rows: rows[:-cut])
    tampering.note(path.parent, head=False)
    assert re.search(f"ends at event {5 - cut}, its head file at 5: {cut} event", problems(path))
    with pytest.raises(IntegrityError, match="cut off"):
        Ledger.open(path)


def test_without_a_checksum_the_head_alone_finds_an_older_copy(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "older.db")
    with Ledger.open(path) as ledger:
        ledger.append("resumed", "resumed/2", Resumed(n=2))
    (tmp_path / "older.db").replace(path)
    head.note_path(path).unlink()
    assert "an older copy was put back" in problems(path)


def test_a_killed_writer_leaves_the_head_one_event_behind_and_the_next_catches_up(path: Path) -> None:
    program = (
        "from evotrainer.records.ledger import Ledger\nfrom evotrainer.records.events import Resumed\n"
        f"Ledger.open({str(path)!r}).append('resumed', 'resumed/2', Resumed(n=2))"
    )
    env = {**os.environ, "EVOTRAINER_KILL_AT": "after:resumed/2"}
    assert subprocess.run([sys.executable, "-c", program], env=env).returncode < 0
    noted = head.read_head(path)
    assert noted is not None
    assert noted[0] == 5
    assert problems(path) == "", "a lag of one is what a kill leaves"
    with Ledger.open(path, readonly=True) as ledger:
        assert ledger.blind_spots() == [
            "not closed by its writer: bytes of ledger.db that hold no event are not compared"
        ]
    with Ledger.open(path) as ledger:
        assert head.read_head(path) == ledger.head == (6, ledger.head[1])


def test_a_full_disk_between_event_and_head_is_made_good_before_the_next(path: Path) -> None:
    with Ledger.open(path) as ledger:

        def full(*_: object) -> None:
            raise StoreError("the disk is full")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("evotrainer.records.ledger.write_head", full)
            with pytest.raises(StoreError, match="full"):
                ledger.append("resumed", "resumed/2", Resumed(n=2))
        assert ledger.get("resumed/2") is not None, "the event itself is recorded"
        ledger.append("resumed", "resumed/3", Resumed(n=3))
        assert head.read_head(path) == ledger.head
        assert ledger.verify() == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "head file is missing"),
        ("", "is damaged"),
        ("5 " + "0" * 64 + "\n", "event 5 is not the one its head file names"),
        ("05 {hash}\n", "is damaged"),
        ("5 {hash}", "is damaged"),
        ("9 {hash}\n", "ends at event 5, its head file at 9"),
    ],
)
def test_a_head_file_that_does_not_fit_is_named(path: Path, text: str | None, complaint: str) -> None:
    with Ledger.open(path, readonly=True) as ledger:
        digest = ledger.head[1]
    head.head_path(path).unlink()
    if text is not None:
        head.head_path(path).write_text(text.format(hash=digest))
    assert complaint in problems(path)
    with pytest.raises(IntegrityError, match=complaint):
        Ledger.open(path)


def test_a_head_put_back_by_more_than_a_kill_is_found(path: Path) -> None:
    rows = tampering.rows(path)
    head.head_path(path).write_text(f"3 {rows[2][6]}\n")
    assert "its head file stops at event 3 of 5" in problems(path)


def test_a_head_one_event_behind_a_closed_ledger_is_found(path: Path) -> None:
    rows = tampering.rows(path)
    head.head_path(path).write_text(f"4 {rows[3][6]}\n")
    assert "its head file stops at event 4 of 5" in problems(path)


def _slack(path: Path) -> None:
    tampering.ATTACKS["bytes changed where SQLite keeps nothing"](path.parent)


def _vacuum(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE INDEX extra ON event(kind)")
    db.execute("DROP INDEX extra")
    db.close()


@pytest.mark.parametrize("change", [_slack, _vacuum])
def test_bytes_that_hold_no_event_are_compared_as_well(path: Path, change: Callable[[Path], None]) -> None:
    with Ledger.open(path, readonly=True) as ledger:
        before = ledger.events()
    change(path)
    with Ledger.open(path, readonly=True) as ledger:
        assert ledger.events() == before, "no reader sees a difference"
        assert "not, byte for byte, the file that was closed" in ledger.verify()[0]
    with pytest.raises(IntegrityError, match="byte for byte"):
        Ledger.open(path)
    head.note_path(path).unlink()  # the remedy the message names
    with Ledger.open(path) as ledger:
        assert ledger.events() == before
    assert problems(path) == ""


def test_any_changed_bit_of_a_closed_ledger_and_its_helpers_is_found(path: Path) -> None:
    chance = random.Random(5)
    files = [path, head.head_path(path), head.note_path(path)]
    good = {p: p.read_bytes() for p in files}
    for n in range(150):
        p = files[n % 3]
        at, change = tampering.flip(p, chance)
        assert problems(path), f"{p.name}: byte {at} xor {change:#x}"
        for left in path.parent.glob("ledger.db-*"):
            left.unlink()
        p.write_bytes(good[p])
    assert problems(path) == ""


def test_flips_in_the_log_of_a_killed_writer_lose_no_event_unnoticed(path: Path, tmp_path: Path) -> None:
    ledger = Ledger.open(path)
    for n in range(2, 6):
        ledger.append("resumed", f"resumed/{n}", Resumed(n=n))
    shutil.copytree(path.parent, tmp_path / "killed", ignore=shutil.ignore_patterns("*-shm", "killed"))
    ledger.close()
    killed = tmp_path / "killed" / "ledger.db"
    wal, main = killed.with_name("ledger.db-wal"), killed.read_bytes()
    good, chance, found = wal.read_bytes(), random.Random(6), 0
    with Ledger.open(killed, readonly=True) as again:
        events = again.events()
    for _ in range(60):
        wal.write_bytes(good)
        killed.write_bytes(main)
        killed.with_name("ledger.db-shm").unlink(missing_ok=True)
        tampering.flip(wal, chance)
        if problems(killed):
            found += 1
            continue
        with Ledger.open(killed, readonly=True) as again:
            assert again.events() == events, "what is not found changes nothing"
    assert found > 30


def test_a_noted_head_finds_what_a_forger_of_everything_leaves(path: Path) -> None:
    with Ledger.open(path, readonly=True) as ledger:
        events = ledger.events()
    for n in (1, 3, 5):
        assert verify_run(path.parent, {}, events[n - 1].hash).ok, "an earlier head stays true as the ledger grows"
    assert verify_run(path.parent, {}, f"5 {events[-1].hash[:16]}").ok, "as it is printed, or shortened"
    tampering.edited(path.parent, lambda rows: rows[:-2])
    tampering.note(path.parent)
    assert verify_run(path.parent, {}).ok, "cut off, head file and checksum rewritten: nothing in the folder tells"
    (problem,) = verify_run(path.parent, {}, events[-1].hash).problems
    assert "events were cut off the end, or the ledger was rewritten" in problem.message
    for wrong in ("5600", "not a hash at all, is it"):
        with pytest.raises(ConfigError, match="is no head"):
            verify_run(path.parent, {}, wrong)


def test_a_kind_without_a_check_is_named_in_the_report(path: Path) -> None:
    report = verify_run(path.parent, {})
    assert report.unchecked == ("branch", "intended", "resumed")

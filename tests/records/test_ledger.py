"""The ledger: append-only, chained, one writer, any reader, and plain words when something is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from evotrainer.errors import IntegrityError, StoreError
from evotrainer.records.chain import GENESIS, canonical, chain_hash
from evotrainer.records.events import BODIES, Invalidated, Promoted, RunClosed
from evotrainer.records.ledger import Journal, Ledger
from evotrainer.records.recipe import Recipe
from tests.small_records import RECIPE, finished, intended, intervention, opened


def closed(reason: str = "done", **fields: float) -> RunClosed:
    values = {"cpu_s": 0.1, "wall_s": 1 / 3, "peak_rss_mb": 5} | fields
    return RunClosed(reason=reason, champion="b1", **values)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with three events, closed."""
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        ledger.append("branch", "b0/opened", opened("b0", None, RECIPE))
        ledger.append("intended", "b0-s1/intended", intended("b0-s1"))
        ledger.append("finished", "b0-s1/finished", finished("b0-s1", curve=({"step": 1.0, "reward": 0.1 + 0.2},)))
    return tmp_path / "ledger.db"


def tamper(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    db.executescript("DROP TRIGGER event_no_update; DROP TRIGGER event_no_delete;" + ";".join(statements))
    db.close()


def test_events_come_back_typed_and_in_order(path: Path) -> None:
    with Ledger.open(path, readonly=True) as ledger:
        events = ledger.events()
        assert [e.seq for e in events] == [1, 2, 3]
        assert events[0].body == opened("b0", None, RECIPE)
        assert isinstance(events[0].body.recipe, Recipe)
        assert events[2].body.curve == ({"step": 1.0, "reward": 0.1 + 0.2},), "floats are exact"
        assert ledger.events("intended") == [events[1]]
        assert ledger.get("b0-s1/finished") == events[2]
        assert ledger.get("b9/opened") is None
        assert ledger.head == (3, events[2].hash)
        assert ledger.verify() == []


def test_the_same_event_again_is_a_no_op_and_another_body_is_refused(path: Path) -> None:
    with Ledger.open(path) as ledger:
        first = ledger.get("b0-s1/finished")
        assert first is not None
        assert ledger.append("finished", "b0-s1/finished", first.body) == first
        with pytest.raises(IntegrityError, match="already recorded with another content"):
            ledger.append("finished", "b0-s1/finished", finished("b0-s1", cpu_s=1.0))
        with pytest.raises(IntegrityError, match="already recorded"):
            ledger.append("closed", "b0-s1/finished", closed())
        assert len(ledger.events()) == 3


def test_a_body_recorded_before_a_field_existed_is_still_the_same_event(tmp_path: Path) -> None:
    body = intended("b0-s1")
    old = canonical(body).replace(',"train":true', "")
    assert old != canonical(body)
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        ledger._insert("intended", "b0-s1/intended", old)
        assert ledger.append("intended", "b0-s1/intended", body).seq == 1
        assert ledger.verify() == []


def test_a_body_of_the_wrong_kind_is_refused(path: Path) -> None:
    with Ledger.open(path) as ledger:
        with pytest.raises(StoreError, match="takes TrialFinished, got RunClosed"):
            ledger.append("finished", "x", closed())
        with pytest.raises(StoreError, match="no known body"):
            ledger.append("guess", "x", closed())


@pytest.mark.parametrize("statement", ["UPDATE event SET body='{}' WHERE seq=2", "DELETE FROM event WHERE seq=3"])
def test_sqlite_itself_refuses_to_change_history(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("UPDATE event SET body=replace(body,'80.0','8.0') WHERE seq=3", r"event 3 .* does not match its hash"),
        ("UPDATE event SET time='2020' WHERE seq=1", r"event 1 .* does not match its hash"),
        ("DELETE FROM event WHERE seq=2", r"events 2 to 2 are missing"),
        ("UPDATE event SET prev_hash='0' WHERE seq=2", r"event 2 .* chain is broken"),
    ],
)
def test_tampering_is_found_by_verify_and_refused_by_readers(path: Path, statement: str, complaint: str) -> None:
    tamper(path, statement)
    with Ledger.open(path, readonly=True) as ledger:
        problems = "\n".join(ledger.verify())
        assert "trigger event_no_update is missing" in problems
        with pytest.raises(IntegrityError, match=complaint):
            ledger.events()
    assert re.search(complaint, problems)


def test_unknown_kinds_and_unreadable_bodies_are_named(path: Path) -> None:
    with Ledger.open(path) as ledger:
        assert ledger.head[0] == 3
        ledger._insert("prophecy", "x", "{}")
        problems = ledger.verify()
    assert problems == ["event 4 (x): unknown kind 'prophecy'"]
    with Ledger.open(path, readonly=True) as ledger, pytest.raises(IntegrityError, match="evotrainer that wrote it"):
        ledger.events()


def test_readers_see_what_a_writer_adds_while_it_writes(path: Path) -> None:
    with Ledger.open(path) as writer, Ledger.open(path, readonly=True) as reader:
        assert len(reader.events()) == 3
        writer.append("closed", "closed", closed())
        assert reader.events()[-1].body == closed()
        with pytest.raises(StoreError, match="reading only"):
            reader.append("closed", "more", closed())


def test_a_second_writer_is_told_who_holds_the_ledger(path: Path) -> None:
    with Ledger.open(path), pytest.raises(StoreError, match=f"written by process {os.getpid()};"):
        Ledger.open(path)
    Ledger.open(path).close()


def test_missing_foreign_broken_and_newer_files_are_told_apart(tmp_path: Path, path: Path) -> None:
    with pytest.raises(StoreError, match="no ledger at"):
        Ledger.open(tmp_path / "none.db")
    with pytest.raises(StoreError, match="no ledger at"):
        Ledger.open(tmp_path / "none.db", readonly=True)
    rubbish = tmp_path / "rubbish.db"
    rubbish.write_bytes(b"not a database " * 400)
    for readonly in (True, False):
        with pytest.raises(IntegrityError, match="not an SQLite database"):
            Ledger.open(rubbish, readonly=readonly)
    foreign = sqlite3.connect(tmp_path / "foreign.db")
    foreign.execute("CREATE TABLE t(x)")
    foreign.close()
    before = (tmp_path / "foreign.db").read_bytes()
    with pytest.raises(StoreError, match="not an EvoTrainer ledger"):
        Ledger.open(tmp_path / "foreign.db", create=True)
    assert (tmp_path / "foreign.db").read_bytes() == before
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version=99")
    newer.close()
    with pytest.raises(StoreError, match=r"written by another version of evotrainer .* or start a new run"):
        Ledger.open(path)


@pytest.mark.parametrize("written", [None, 7])
def test_a_run_of_another_format_is_refused_in_one_sentence(tmp_path: Path, written: int | None) -> None:
    """Also one that names none, and whatever would not be read of its other events."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path, create=True):
        pass
    body = json.dumps({"rules": 9} if written is None else {"format": written})
    with contextlib.closing(sqlite3.connect(path)) as db:
        row = (1, "run", "run", "t", body, GENESIS, chain_hash(GENESIS, 1, "run", "run", "t", body))
        db.execute("INSERT INTO event VALUES (?,?,?,?,?,?,?)", row)
        db.commit()
    for readonly in (True, False):
        with pytest.raises(StoreError) as told:
            Ledger.open(path, readonly=readonly)
        assert str(told.value) == (
            f"{path} was written by another version of evotrainer (run format {written or 'none'}; this one reads "
            "format 2); read it with the version that wrote it, or start a new run"
        )


def test_no_flipped_bit_or_lost_end_gives_a_reader_wrong_events(tmp_path: Path, path: Path) -> None:
    with Ledger.open(path, readonly=True) as ledger:
        right = ledger.events()
    good = path.read_bytes()
    refused = 0
    for n in range(150):
        data = bytearray(good)
        if n % 3 == 0:
            del data[len(good) * n // 150 :]
        else:
            data[(n * 7919) % len(good)] ^= 1 << n % 8
        copy = tmp_path / "copy" / "ledger.db"
        shutil.rmtree(copy.parent, ignore_errors=True)
        copy.parent.mkdir()
        copy.write_bytes(data)
        refused += _refused(copy, right)
    assert refused > 50, "most damage is noticed, the rest does not matter"


def _refused(path: Path, right: list) -> bool:
    try:
        with Ledger.open(path, readonly=True) as ledger:
            found = ledger.events()
    except StoreError as e:
        return str(path) in str(e)
    # Cut between pages SQLite may show an empty but well-formed table: a shorter history, never a wrong one.
    assert found == right[: len(found)]
    return False


def test_a_ledger_in_the_instant_of_its_making_is_called_so(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as db:
        db.execute("PRAGMA journal_mode=WAL")
        with pytest.raises(StoreError, match="is empty: its run is just being started.*try again"):
            Ledger.open(tmp_path / "ledger.db", readonly=True)


def test_a_ledger_that_reaches_its_size_limit_says_so_and_keeps_all(path: Path) -> None:
    with Ledger.open(path) as ledger:
        pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
        ledger._db.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(StoreError, match="disk is full; free some space"):
            ledger.append("closed", "closed", closed("x" * 100_000))
        assert len(ledger.events()) == 3
        ledger._db.execute("PRAGMA max_page_count=100000")
        assert ledger.append("closed", "closed", closed()).seq == 4
        assert ledger.verify() == []


def test_odd_text_is_recorded_and_nan_is_refused(path: Path) -> None:
    with Ledger.open(path) as ledger:
        event = ledger.append("closed", "c\ud800", closed("a\ud800\0\u2028 \U0001f600"))
        assert event.body.reason == "a\ufffd\0\u2028 \U0001f600"
        assert event.id == "c\ufffd"
        assert ledger.append("closed", "c\ud800", closed("a\ud800\0\u2028 \U0001f600")) == event
        change = opened("b1", "b0", RECIPE, intervention("lr", float("nan"), 1))
        with pytest.raises(StoreError, match="BranchOpened cannot be recorded"):
            ledger.append("branch", "b1/opened", change)
        assert ledger.verify() == []


def test_a_recorded_step_is_not_run_again_and_a_failed_one_leaves_no_trace(path: Path) -> None:
    runs: list[str] = []

    def effect() -> Promoted:
        runs.append("ran")
        return Promoted(version="v0", branch="b0", previous=None)

    with Ledger.open(path) as ledger:
        journal = Journal(ledger)
        assert journal.step("v0", "promoted", effect) == journal.step("v0", "promoted", effect)
        assert runs == ["ran"]
        assert ledger.get("v0") is not None
        with pytest.raises(ZeroDivisionError):
            journal.step("closed", "closed", lambda: closed(cpu_s=1 / 0))
        assert ledger.get("closed") is None
        with pytest.raises(IntegrityError, match="is recorded as 'promoted'"):
            journal.step("v0", "closed", closed)
    with Ledger.open(path) as ledger:
        assert Journal(ledger).step("v0", "promoted", effect).version == "v0"
    assert runs == ["ran"]


def test_a_step_returns_what_was_recorded_so_that_a_resumed_run_sees_the_same(path: Path) -> None:
    body = opened("b1", "b0", RECIPE.with_factor("lr", 2e-4), intervention("clip", (1, 2), {"low": 0.1}))
    with Ledger.open(path) as ledger:
        first = Journal(ledger).step("b1/opened", "branch", lambda: body)
        assert first.intervention is not None
        assert first.intervention.old == [1, 2], "a tuple is a list in JSON, at once and not only after a resume"
    with Ledger.open(path) as ledger:
        assert Journal(ledger).step("b1/opened", "branch", lambda: body) == first


def test_every_kind_has_a_body_of_its_own() -> None:
    assert len(set(BODIES.values())) == len(BODIES)
    assert BODIES["invalidated"] is Invalidated


@pytest.mark.parametrize("levels", [250, 3000])
def test_what_could_not_be_read_again_is_not_recorded(path: Path, levels: int) -> None:
    value: object = 1
    for _ in range(levels):
        value = [value]
    with Ledger.open(path) as ledger:
        change = opened("b1", "b0", RECIPE, intervention("lr", value, 1))
        with pytest.raises(StoreError, match="nothing was recorded|cannot be recorded"):
            ledger.append("branch", "b1/opened", change)
        assert len(ledger.events()) == 3 and ledger.verify() == []
        assert ledger.append("closed", "closed", closed()).seq == 4
    with Ledger.open(path, readonly=True) as ledger:
        assert ledger.head[0] == 4

"""`records.looks`: the register that runs share."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from evotrainer.errors import StoreError
from evotrainer.records.looks import LookCount, LookRegister, register_file, set_key


@pytest.fixture
def register(tmp_path: Path) -> LookRegister:
    return LookRegister(tmp_path / "deep" / "looks.db")


def folder(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    (tmp_path / name / "task.toml").touch()
    return tmp_path / name


def test_a_set_is_known_by_what_its_tasks_ask() -> None:
    assert set_key(["a", "b"]) == set_key(["b", "a"]) != set_key(["a", "b", "b"])
    assert len(set_key([])) == 32


def test_a_run_keeps_its_number_and_looks_are_counted_once(register: LookRegister, tmp_path: Path) -> None:
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two")
    assert register.next_number("s") == 1
    assert [register.join("s", r, f) for r, f in (("r1", one), ("r2", two), ("r1", one))] == [1, 2, 1]
    assert register.join("other set", "r2", two) == 1
    assert register.enter("c", "r1", "certified certified", 0, one) == LookCount(1, 1)
    assert register.enter("c", "r1", "certified certified/2", 0, one) == LookCount(2, 1)
    assert register.enter("c", "r2", "certified certified", 0, two) == LookCount(3, 2)
    assert register.enter("c", "r1", "certified certified", 0, one) == LookCount(1, 1), "a resume enters nothing twice"
    assert register.enter("c", "r2", "judged b1/judged", 0, two) == LookCount(1, 1), "looks of another kind"
    assert register.path.stat().st_mode & 0o777 == 0o600


def test_a_run_that_is_gone_gives_its_number_back_unless_it_looked(register: LookRegister, tmp_path: Path) -> None:
    for k in (1, 2):
        register.join("s", f"r{k}", folder(tmp_path, f"f{k}"))
    register.enter("s", "r2", "judged b1/judged", 2, tmp_path / "f2")
    for k in (1, 2):
        (tmp_path / f"f{k}" / "task.toml").unlink()
    later = folder(tmp_path, "later")
    assert (register.join("s", "r3", later), register.join("s", "r4", later)) == (1, 3)
    with pytest.raises(StoreError, match="another run has this run's number 1 .* start a new run"):
        register.enter("s", "r1", "judged b1/judged", 1, tmp_path / "f1")


def test_a_kill_in_the_middle_of_an_entry_leaves_none(register: LookRegister, tmp_path: Path) -> None:
    register.join("s", "r1", folder(tmp_path, "one"))
    child = os.fork()
    if child == 0:  # holds the transaction open with a row in it, until it is killed
        db = sqlite3.connect(register.path, isolation_level=None)
        db.execute("begin immediate")
        db.execute("insert into looks values ('s', 'r1', 'judged b1/judged', 0)")
        (tmp_path / "written").touch()
        time.sleep(600)
    while not (tmp_path / "written").exists():
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert register.enter("s", "r1", "judged b2/judged", 1, tmp_path / "one") == LookCount(1, 1)


def test_a_file_that_is_no_register_is_an_error_with_a_remedy(register: LookRegister, tmp_path: Path) -> None:
    register.path.parent.mkdir()
    register.path.write_text("something else, and long enough to be looked at " * 50)
    with pytest.raises(StoreError, match="cannot be used .*set run.looks to another file, or to off"):
        register.join("s", "r1", tmp_path)


def test_where_the_register_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EVOTRAINER_REGISTER", str(tmp_path / "env.db"))
    assert register_file() == tmp_path / "env.db" and register_file(str(tmp_path / "own.db")) == tmp_path / "own.db"
    monkeypatch.setenv("EVOTRAINER_REGISTER", "off")
    assert register_file() is None
    monkeypatch.delenv("EVOTRAINER_REGISTER")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert register_file() == tmp_path / "evotrainer" / "looks.db" and register_file("off") is None

"""`evotrainer status --watch`: shown again while a run is under way, and once where it has ended."""

from __future__ import annotations

import contextlib
import io
import shutil
import sqlite3
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from evotrainer.errors import ConfigError, IntegrityError, StoreError
from evotrainer.records.console import Console
from evotrainer.views.status import render_status
from tests.cli.call import in_this_process as evotrainer


def test_watching_a_run_that_has_ended_shows_it_once(finished_run: Path) -> None:
    shown = evotrainer("status", str(finished_run), "--watch")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("noise floor of the run") == 1
    assert shown.stdout == evotrainer("status", str(finished_run)).stdout, "with the end of its last line"
    both = evotrainer("status", str(finished_run), "--watch", "--json")
    assert both.returncode == ConfigError.exit_code and "give one of them" in both.stderr


def test_a_run_is_read_again_until_nobody_drives_it(finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a pipe: a line where something moved, and the whole at the end."""
    drivers = iter(["a process", "a process", "a process", None])
    lines = iter(["trial 1 of about 9", "trial 1 of about 9", "trial 2 of about 9"])
    monkeypatch.setattr("evotrainer.cli.status.WATCH_S", 0.0)
    monkeypatch.setattr("evotrainer.views.fold.load_view", lambda *a, **k: SimpleNamespace(driver=next(drivers)))
    monkeypatch.setattr("evotrainer.views.progress.of_view", lambda view: SimpleNamespace(line=lambda: next(lines)))
    whole = evotrainer("status", str(finished_run)).stdout
    assert evotrainer("status", str(finished_run), "--watch").stdout == (
        "trial 1 of about 9\ntrial 2 of about 9\n" + whole
    )


def test_what_moves_fits_a_terminal_of_24_rows(finished_run: Path) -> None:
    screen = Console(width=100, file=io.StringIO())
    screen.print(render_status(finished_run, brief=True))
    brief = screen.file.getvalue()  # type: ignore[attr-defined]
    assert brief.count("\n") <= 24 and "noise floor of the run" not in brief and "state" in brief


def test_a_ledger_whose_end_was_cut_off_is_refused(finished_run: Path, tmp_path: Path) -> None:
    """It would read as a run that was interrupted, whose certificate never was."""
    cut = tmp_path / "cut"
    shutil.copytree(finished_run, cut)
    with contextlib.closing(sqlite3.connect(cut / "ledger.db")) as db:
        for (name,) in list(db.execute("select name from sqlite_master where type = 'trigger'")):
            db.execute(f"drop trigger {name}")
        db.execute("delete from event where seq > 40")
        db.commit()
    told = evotrainer("status", str(cut))
    assert told.returncode == IntegrityError.exit_code and "it ends at event 40, its head file at" in told.stderr


def test_watching_waits_for_a_run_that_is_just_beginning(
    finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started in the other terminal a second before the run, it said that there was no run, and ended."""
    looks = []

    real, here = time.sleep, threading.get_ident()

    def sleep(seconds: float) -> None:
        if threading.get_ident() != here:  # left behind by another test
            return real(seconds)
        looks.append(seconds)
        assert len(looks) < 4, "it goes on as soon as there is a run"
        if len(looks) == 1:
            (tmp_path / "new").mkdir()
        elif len(looks) == 2:
            shutil.copytree(finished_run, tmp_path / "new", dirs_exist_ok=True)
        return None

    monkeypatch.setattr("evotrainer.cli.status.time.sleep", sleep)
    shown = evotrainer("status", str(tmp_path / "new"), "--watch")
    assert shown.returncode == 0, shown.stderr
    first, _, rest = shown.stdout.partition("\n")
    assert first.endswith("holds no run yet; waiting until one begins there (Ctrl-C ends this)")
    assert rest.count("noise floor of the run") == 1 and len(looks) == 2


def test_watching_a_file_or_a_broken_ledger_does_not_wait(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ledger.db").write_text("no ledger at all")
    for name in ("file", "run"):
        told = evotrainer("status", str(tmp_path / name), "--watch")
        assert told.returncode == StoreError.exit_code and str(tmp_path / name) in told.stderr, told.stderr


def test_ctrl_c_ends_the_waiting_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("evotrainer.cli.status.time.sleep", interrupted)
    ended = evotrainer("status", str(tmp_path / "never"), "--watch")
    assert ended.returncode == 130 and ended.stderr.count("\n") <= 1 and "Traceback" not in ended.stderr

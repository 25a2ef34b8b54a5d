"""Long work says on stderr what it is at, short work says nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from evotrainer.cli import _progress
from evotrainer.cli._progress import progress
from evotrainer.studies.audit import audit, bulk, sources


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_progress, "PATIENCE_S", 0.05)
    monkeypatch.setattr(_progress, "EVERY_S", 0.05)


@pytest.mark.usefixtures("impatient")
def test_without_a_terminal_long_work_writes_lines_also_while_no_step_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as say:
        say("reading rollouts", 3, 40)
        time.sleep(0.3)
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) >= 2
    assert told.err.startswith("evotrainer: reading rollouts, 3 of 40, 0 s\n")


@pytest.mark.usefixtures("impatient")
def test_on_a_terminal_one_line_rewrites_itself_and_goes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with progress() as say:
        say("reading rollouts of [/o1]\x1b[31m", 3, 40)  # names come from the data
        time.sleep(0.3)
    told = capsys.readouterr().err
    assert "reading rollouts of [/o1]\\x1b[31m" in told and "3/40" in told
    assert told.endswith("\x1b[2K"), "the line is wiped at the end"


@pytest.mark.parametrize("terminal", ["", "1"])
def test_short_work_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: str
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
    with progress() as say:
        say("reading rollouts", 3, 40)
    assert capsys.readouterr() == ("", "")


def test_every_part_of_an_audit_says_what_it_is_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "IN_MEMORY", 10)
    monkeypatch.setattr(bulk, "JOB_BYTES", 1000)
    rows = [{"task": f"t{i}", "text": "said", "reward": i % 2} for i in range(50)]
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    told: list[str] = []
    audit([path], cache=tmp_path / "cache", workers=2, progress=lambda what, done, of: told.append(what))
    said = list(dict.fromkeys(told))
    assert said == [f"opening {path}", "importing", "reading rollouts", "looking for findings in all rollouts"]

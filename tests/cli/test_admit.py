"""`evotrainer admit`: what is tried, and what its exit says."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from evotrainer.cli.admit import admit
from evotrainer.envs.swe import admission
from evotrainer.envs.swe.world import Grade
from evotrainer.errors import ConfigError

TASKS = Path(__file__).resolve().parents[2] / "tasks"


def test_generated_tasks_are_admitted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    admit(TASKS / "swe.toml", ["environment.search=4"], split="search", limit=2)
    told = capsys.readouterr().out
    assert "2 of 2 tasks" in told and "conftest that passes everything" in told


def test_a_task_that_doing_nothing_solves_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # kept apart by hand, since root's cache is one for the machine: no earlier verdict may be taken, none be left there
    empty = admission.Cache(tmp_path)
    monkeypatch.setattr(admission, "Cache", lambda: empty)

    def solved(repo: object, grade: Grade) -> list[str]:
        return []

    # a fake of ours, since no generator makes such a task: a grading in which nothing ever fails
    monkeypatch.setattr(admission, "_failed", solved)
    with pytest.raises(typer.Exit) as left:
        admit(TASKS / "swe.toml", ["environment.search=2"], split="search", limit=1)
    told = capsys.readouterr().out
    assert left.value.exit_code == 1 and "0 of 1 tasks" in told and "doing nothing passes" in told


def test_other_tasks_have_nothing_to_admit() -> None:
    with pytest.raises(ConfigError, match="no repositories to admit"):
        admit(TASKS / "code.toml", split="search", limit=1)

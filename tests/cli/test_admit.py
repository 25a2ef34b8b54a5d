"""`evotrainer admit`: what is tried, and what its exit says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from evotrainer.cli.admit import admit
from evotrainer.errors import ConfigError

TASKS = Path(__file__).resolve().parents[2] / "tasks"


def test_tasks_that_their_own_solution_does_not_solve_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows = [
        {"prompt": "Print 1.", "tests": [["", "1"], ["x", "1"]], "solution": "print(1)"},
        {"prompt": "Print 2.", "tests": [["", "2"], ["x", "2"]], "solution": "print(3)"},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    options = [f"environment.source={tmp_path / 'rows.jsonl'}"]
    admit(TASKS / "code-data.toml", options, limit=1)
    assert "1 of 1 tasks" in capsys.readouterr().out
    with pytest.raises(typer.Exit) as left:
        admit(TASKS / "code-data.toml", options)
    told = capsys.readouterr().out
    assert left.value.exit_code == 1 and "1 of 2 tasks" in told and "its own solution does not pass" in told


@pytest.mark.parametrize("file", ["code.toml", "swe.toml"])
def test_generated_tasks_have_nothing_to_admit(file: str) -> None:
    with pytest.raises(ConfigError, match="no instances to admit"):
        admit(TASKS / file, limit=1)

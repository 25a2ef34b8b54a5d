"""Reward functions for TRL are called before a run is paid for: `TrlEnv.try_rewards`, by `--dry-run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evotrainer.envs import open_environment
from evotrainer.errors import TaskSetError

ROWS = [{"prompt": f"Add {i} and 1.", "answer": str(i + 1)} for i in range(40)]


def tried(folder: Path, body: str, signature: str = "prompts, completions, answer, **kwargs") -> list[str]:
    rows, file = folder / "rows.jsonl", folder / "reward.py"
    rows.write_text("".join(json.dumps(r) + "\n" for r in ROWS), encoding="utf-8")
    file.write_text(f"import os\nimport sys\n\n\ndef right({signature}):\n    {body}\n", encoding="utf-8")
    environment = open_environment({"name": f"trl-rewards:{file}:right", "path": str(rows)})
    return list(environment.try_rewards())  # type: ignore[attr-defined]


def test_one_that_works_is_let_through_without_a_word(tmp_path: Path) -> None:
    assert tried(tmp_path, "return [float(a in c) for a, c in zip(answer, completions)]") == []
    assert tried(tmp_path, "return [None for c in completions]") == []
    assert tried(tmp_path, "return [0.0 for _ in range(len(completions) + kwargs['trainer_state'].global_step)]") == []


@pytest.mark.parametrize(
    ("body", "signature", "says"),
    [
        ("return [0.0] * len(completions)", "prompts, completions", "cannot be called as TRL calls it.*kwargs"),
        ("return [0.0] * len(completions)", "completions, gold, **kwargs", "missing a required argument: 'gold'"),
        ("return [0.0]", "completions, **kwargs", "gave 1 values for 2 completions"),
        ("sys.exit(3)", "completions, **kwargs", r"called sys.exit\(3\)"),
        ("os._exit(0)", "completions, **kwargs", r"called os._exit\(0\)"),
    ],
)
def test_what_training_would_end_by_is_refused(tmp_path: Path, body: str, signature: str, says: str) -> None:
    with pytest.raises(TaskSetError, match=says):
        tried(tmp_path, body, signature)


def test_what_newer_trl_hands_over_is_there_and_nan_is_a_note(tmp_path: Path) -> None:
    assert tried(tmp_path, "log_metric('x', 1.0); return [0.0] * 2", "completions, log_metric, **kwargs") == []
    (note,) = tried(tmp_path, "return [float('nan')] * 2", "completions, **kwargs")
    assert "gave nan" in note and "empty completions" in note


def test_an_error_that_an_empty_answer_may_cause_is_a_note(tmp_path: Path) -> None:
    (note,) = tried(tmp_path, "return [float(c.split()[0] == a) for c, a in zip(completions, answer)]")
    assert "'right' raised IndexError" in note and "empty completions" in note

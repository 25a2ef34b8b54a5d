"""Rows of a user's own that TRL and a warm start are given: what becomes of numbers, names and halves of characters."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer.envs import open_environment
from evotrainer.envs.trl_env import TAKEN
from evotrainer.errors import TaskSetError


def opened(folder: Path, rows: list[dict[str, Any]], **more: Any) -> Any:
    (folder / "own.py").write_text(
        "def right(prompts, completions, **columns):\n    return [0.0 for _ in completions]\n"
    )
    rows = [{"prompt": f"{n} and one", **row} for n, row in enumerate(rows)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    splits = {"train": 1.0, "search": 0, "gate": 0, "cert": 0}
    name = f"trl-rewards:{folder / 'own.py'}:right"
    return open_environment({"name": name, "source": str(folder / "rows.jsonl"), "splits": splits, **more})


def test_numbers_are_worked_answers_as_text_and_what_is_missing_is_none(tmp_path: Path) -> None:
    answers = [0, 7, 7.5, "eight", float("nan"), None, "", [], [{"role": "assistant", "content": "nine"}]]
    environment = opened(tmp_path, [{"sum": a} for a in answers], demonstrations="sum")
    assert sorted(a for _, a in environment.demonstrations(99, 1)) == ["0", "7", "7.5", "eight", "nine"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([3], "row 2: field 'total' is list; give a text, a number, or messages"),
        (True, "row 2: field 'total' is bool"),
        ("a\ud800", r"row 2: field 'total' has half a character \(a lone surrogate\); correct it"),
    ],
)
def test_a_worked_answer_that_is_none_is_refused_by_row_and_own_column(tmp_path: Path, answer: Any, says: str) -> None:
    with pytest.raises(TaskSetError, match=says):
        opened(tmp_path, [{"total": 1}, {"total": answer}], columns={"sum": "total"}, demonstrations="sum")


def test_a_prompt_is_refused_by_the_name_that_the_rows_have_for_it(tmp_path: Path) -> None:
    for wrong, says in (([3], "field 'question' is list"), ("\udfff?", "field 'question' has half a character")):
        with pytest.raises(TaskSetError, match=f"row 1: {says}"):
            opened(tmp_path, [{"prompt": "x", "question": wrong}], columns={"prompt": "question", "old": "prompt"})


@pytest.mark.parametrize("column", TAKEN)
def test_a_column_with_the_name_of_an_argument_is_refused_and_may_be_renamed(tmp_path: Path, column: str) -> None:
    with pytest.raises(TaskSetError, match=rf"row 2: column '{column}' has the name of an argument .*or rename it"):
        opened(tmp_path, [{}, {column: "x"}])
    assert opened(tmp_path, [{column: "x"}], columns={"mine": column}).tasks("train")[0].data["mine"] == "x"


def test_every_argument_that_trl_hands_over_is_taken() -> None:
    trainer = pytest.importorskip("trl").GRPOTrainer
    lines = inspect.getsource(inspect.unwrap(trainer._calculate_rewards)).splitlines()
    set_there = {line.split('"')[1] for line in lines if line.strip().startswith('reward_kwargs["')}
    assert set_there and set_there <= set(TAKEN)

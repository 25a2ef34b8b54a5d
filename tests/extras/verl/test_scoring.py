"""Rewards inside verl are ours: weights, length rules, faults; what verl's dumps leave out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.extras.verl.asking import ask

from evotrainer.algorithm.rewards import rewards_of
from evotrainer.errors import FaultsError, TaskSetError
from evotrainer.extras.verl.scoring import ATTEMPTS, Origin, ProcessGrader
from evotrainer.importers.jsonl import IMPORTER as JSONL
from evotrainer.records.rollout import Rollout

PLACE = Origin("00000000-0000-4000-8000-000000000001", 0, 5)


def grader(folder: Path, env: str = "sums", **changes: Any) -> ProcessGrader:
    return ProcessGrader(ask(folder, env, **changes))


def left(folder: Path) -> Iterator[dict[str, Any]]:
    for p in sorted((folder / "out" / "rollouts").iterdir()):
        assert p.name.startswith("5-")
        yield from map(json.loads, p.read_text().splitlines())


def test_the_reward_is_the_recipes(tmp_path: Path) -> None:
    g = grader(tmp_path / "v", rewards={"right": 1.0, "digits": 0.5}, length={"kind": "token_penalty", "weight": 0.01},
               repetition_penalty=0.2)  # fmt: skip
    ids = [7, 7, 7, 7, 7, 7, 0]
    graded = g.grade("train-2", "4", ids, "stop", PLACE)
    assert graded.reward == rewards_of(g.recipe, [{"right": 1.0, "digits": 1.0}], [ids])[0]
    assert graded.reward == pytest.approx(1.5 - 0.07 - 0.2 * 0.5) and graded.score.outcome == "correct"
    empty = g.grade("train-2", "", [0], "stop", PLACE)
    assert empty.missing == ("digits",) and empty.score.components == {"right": 0.0, "digits": None}
    first, second = left(tmp_path / "v")
    assert (first["task"], first["reward"], first["components"]) == (
        "train-2",
        graded.reward,
        {"right": 1.0, "digits": 1.0},
    )
    assert (second["components"]["digits"], second["tokens"], second["outcome"]) == (None, 1, "incorrect")


def test_a_fault_is_tried_again_and_is_never_a_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = tmp_path / "faults"
    monkeypatch.setenv("SUMS_FAULTS", str(faults))
    g = grader(tmp_path / "v")
    faults.write_text(str(ATTEMPTS - 1))
    assert g.grade("train-2", "crash", [1], "stop", PLACE).reward == 0.0, "graded in the last attempt"
    faults.write_text(str(ATTEMPTS))
    with pytest.raises(FaultsError, match="task train-2: .*sandbox: the sandbox broke.*not paid 0"):
        g.grade("train-2", "crash", [1], "stop", PLACE)
    (path,) = (tmp_path / "v" / "out" / "rollouts").iterdir()
    read = [r for r in JSONL.read(path) if isinstance(r, Rollout)]
    assert [(r.reward, r.error_kind) for r in read] == [(0.0, None), (None, "container")], "as a run reads it"
    _, lost = left(tmp_path / "v")
    assert (lost["reward"], lost["error_kind"], lost["turns"][-1]) == (
        None,
        "sandbox",
        {"role": "assistant", "text": "crash"},
    )


def test_a_reward_function_that_raises_is_named_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    g = grader(tmp_path / "v")
    g.grade("train-2", "4", [1], "stop", PLACE)
    monkeypatch.delitem(g.task("train-2").data, "answer")  # type: ignore[arg-type]
    with pytest.raises(
        TaskSetError, match=r"reward function 'right' of environment sums failed on task train-2: KeyError"
    ):
        g.grade("train-2", "4", [1], "stop", PLACE)
    assert [r["error_kind"] for r in left(tmp_path / "v")] == [None, "task_set"]


def test_an_episode_of_several_turns_is_scored(tmp_path: Path) -> None:
    g = grader(tmp_path / "v", "guessing", max_turns=3)
    e = g.begin("train-2")
    assert g.step(e, "5", "stop") == ["lower"] and g.step(e, "2", "stop") == ["higher"] and g.step(e, "4", "stop") == []
    assert e.done and g.end(e, [1, 2, 3], "stop", PLACE).reward == 1.0
    e = g.begin("train-2")
    g.step(e, "5", "stop")
    assert g.end(e, [1], "turn_limit", PLACE).reward == 0.0
    assert [r["finish"] for r in left(tmp_path / "v")] == ["stop", "turn_limit"]


def test_a_task_that_is_gone_says_so(tmp_path: Path) -> None:
    with pytest.raises(TaskSetError, match="no train task 'train-99'; its data changed"):
        grader(tmp_path / "v").grade("train-99", "4", [1], "stop", PLACE)

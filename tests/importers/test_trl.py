"""TRL's completions parquet, written as GRPOTrainer.log writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evotrainer.importers.base import Skipped, Source
from evotrainer.importers.formats.trl import IMPORTER
from evotrainer.records.rollout import Rollout
from evotrainer.testing import check_importer

NAN = float("nan")


def completions(folder: Path, step: int, table: dict[str, list[Any]]) -> Path:
    """One logging step: step, prompt, completion, a column per reward function, extra columns, advantage."""
    pd = pytest.importorskip("pandas")
    path = folder / f"completions_{step:05d}.parquet"
    pd.DataFrame({"step": [step] * len(table["prompt"]), **table}).to_parquet(path)
    return path


def advantages(rewards: list[float], size: int) -> list[float]:
    out: list[float] = []
    for i in range(0, len(rewards), size):
        group = rewards[i : i + size]
        mean = sum(group) / size
        std = (sum((x - mean) ** 2 for x in group) / (size - 1)) ** 0.5
        out += [(x - mean) / (std + 1e-4) for x in group]
    return out


def read(path: Path) -> list[Rollout]:
    return [r for r in IMPORTER.read(path) if isinstance(r, Rollout)]


def test_texts_with_one_reward_function_are_read(tmp_path: Path) -> None:
    rewards = [0.0, 1.0, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0]
    path = completions(
        tmp_path,
        10,
        {
            "prompt": ["p1"] * 4 + ["p2"] * 4,
            "completion": [f"c{i}" for i in range(8)],
            "accuracy_reward": rewards,
            "advantage": advantages(rewards, 4),
        },
    )
    check_importer(IMPORTER, path, count=8)
    out = read(path)
    assert [r.reward for r in out] == rewards and {r.outcome for r in out} == {"unknown"}
    assert [r.k for r in out] == [0, 1, 2, 3] * 2 and len({r.group for r in out}) == 2
    assert out[1].turns[0].role == "user" and out[1].completion == "c1" and out[1].step == 10
    assert out[1].components == {"accuracy_reward": 1.0}
    assert out[1].advantage == pytest.approx(0.7833, abs=1e-3)


def test_conversations_with_tools_extra_columns_and_functions_that_did_not_apply(tmp_path: Path) -> None:
    answer = [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "name": "add", "content": "{'error': 'bad'}"},
        {"role": "assistant", "content": "3"},
    ]
    a, b = [1.0, 0.0, NAN, NAN], [0.5, 0.25, 0.25, NAN]
    sums = [1.5, 0.25, 0.25, NAN]
    path = completions(
        tmp_path,
        2,
        {
            "prompt": [[{"role": "user", "content": "1+2"}]] * 4,
            "completion": [answer] * 4,
            "correct": a,
            "style": b,
            "parsed": ["3", "4", None, None],
            "advantage": [*advantages(sums[:3], 3), 0.0],
        },
    )
    out = read(path)
    assert [r.reward for r in out] == [1.5, 0.25, 0.25, None]
    assert out[2].components == {"correct": None, "style": 0.25} and out[0].detail["parsed"] == "3"
    assert [t.role for t in out[0].turns] == ["user", "assistant", "tool", "assistant"]
    assert out[0].turns[1].tool_calls[0].name == "add" and out[0].turns[1].tool_calls[0].arguments == '{"a": 1}'
    assert out[3].error_kind is None and out[3].outcome == "unknown"


def test_a_reward_is_not_guessed_where_the_advantages_contradict_the_sum(tmp_path: Path) -> None:
    a, b = [1.0, 0.0, 1.0, 0.0], [0.0, 3.0, 1.0, 2.0]
    weighted = [x + 0.01 * y for x, y in zip(a, b, strict=True)]
    path = completions(
        tmp_path,
        1,
        {"prompt": ["p"] * 4, "completion": ["c"] * 4, "a": a, "b": b, "advantage": advantages(weighted, 4)},
    )
    out = read(path)
    assert [r.reward for r in out] == [None] * 4 and out[1].components == {"a": 0.0, "b": 3.0}
    assert "weights" in out[0].detail["reward"]


def test_numbers_logged_beside_the_rewards_are_not_added(tmp_path: Path) -> None:
    a, b, length = [1.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.25, 0.5], [300.0, 20.0, 10.0, 900.0]
    sums = [x + y for x, y in zip(a, b, strict=True)]
    table = {"prompt": ["p"] * 4, "completion": ["c"] * 4, "a": a, "b": b, "length": length}
    out = read(completions(tmp_path, 1, {**table, "advantage": advantages(sums, 4)}))
    assert [r.reward for r in out] == sums and out[0].components == {"a": 1.0, "b": 0.0, "length": 300.0}


def test_the_first_layout_had_one_reward_column(tmp_path: Path) -> None:
    path = completions(tmp_path, 1, {"prompt": ["p"] * 2, "completion": ["a", "b"], "reward": [0.5, 1.0]})
    assert [r.reward for r in read(path)] == [0.5, 1.0] and read(path)[0].advantage is None


def test_other_parquet_files_are_not_taken_and_damage_is_told(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    other = tmp_path / "other.parquet"
    pd.DataFrame({"prompt": ["a"], "completion": ["b"]}).to_parquet(other)
    assert not IMPORTER.recognises(Source(other))
    (skipped,) = IMPORTER.read(other)
    assert isinstance(skipped, Skipped) and "columns" in skipped.reason

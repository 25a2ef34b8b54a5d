"""The published schemas are those of the code."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from scripts import seat_schema
from scripts.rollout_schema import ARROW_FILE, JSON_FILE, arrow_table, json_schema

from evotrainer.importers import read
from evotrainer.records.rollout import Rollout, ToolCall, Turn

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"
FULL = Rollout(
    id="a", task="t", turns=(Turn("user", "q"), Turn("assistant", "x", (ToolCall("bash", "{}", True),), 3)), reward=0.5,
    components={"visible": 1.0, "format": None}, outcome="correct", finish="stop", run="r", branch="b", policy="p",
    split="s", step=2, seed=1, group="g", k=1, attempt=0, tokens=3, advantage=-0.5, mean_logprob=-0.2, entropy=0.1,
    token_ids=(1, 2), logprobs=(-0.1, -0.25), sandbox_tier="A", knobs={"history": "full"}, env_hash="h",
    detail={"tests": [{"input": "1"}]},
)  # fmt: skip


def test_the_published_files_are_current() -> None:
    assert json.loads((SCHEMAS / JSON_FILE).read_text()) == json_schema()
    assert (SCHEMAS / ARROW_FILE).read_text() == arrow_table()
    for name, text in seat_schema.texts().items():
        assert (SCHEMAS / name).read_text(encoding="utf-8") == text, (
            f"{name}: python scripts/seat_schema.py docs/schema"
        )


def test_a_rollout_as_json_fits_and_comes_back_through_the_plain_importer(tmp_path: Path) -> None:
    validate = pytest.importorskip("jsonschema").validate
    row = json.loads(json.dumps(asdict(FULL)))
    validate(row, json_schema())
    validate({"task": "t", "turns": [], "reward": None}, json_schema())
    for wrong in ({"task": "t", "reward": 1.0}, {**row, "reward": "much"}, {**row, "outcome": "perhaps"}):
        with pytest.raises(Exception, match=r"required|type|valid|enum"):
            validate(wrong, json_schema())
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(row) + "\n")
    ((_, _, back),) = read([path])
    assert isinstance(back, Rollout)
    for field in (
        "task",
        "turns",
        "reward",
        "components",
        "outcome",
        "step",
        "group",
        "tokens",
        "advantage",
        "logprobs",
    ):
        assert getattr(back, field) == getattr(FULL, field), field

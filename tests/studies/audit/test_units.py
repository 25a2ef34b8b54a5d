"""A row group of a stored part answers what is asked of it, and reads no more for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evotrainer.records.ingest import ingest
from evotrainer.records.reading import row_group, stored_parts
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.studies.audit import units

TURNS = (Turn("user", "asked"), Turn("assistant", "said"))


def test_a_column_is_read_without_the_turns_and_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest(
        (Rollout(id=f"r{i}", task=f"t{i % 3}", turns=TURNS, reward=None, knobs={"k": i}) for i in range(9)), tmp_path
    )
    (part,) = stored_parts(tmp_path)
    (group,) = units.part_groups(part, [])
    read: list[Any] = []

    def noted(file: Any, path: Path, i: int, columns: list[str] | None = None) -> Any:
        read.append(columns)
        return row_group(file, path, i, columns)

    monkeypatch.setattr(units, "row_group", noted)
    apart = [group.column(name, [8, 0]) for name in ("task", "knobs")]
    assert apart == [["t2", "t0"], [{"k": 8}, {"k": 0}]]
    assert group.turns([0])[0][1].text == "said"
    assert [group.column(name, [8, 0]) for name in ("task", "knobs")] == apart
    assert read == [["task"], ["knobs"], None], "what is in memory is not read again"

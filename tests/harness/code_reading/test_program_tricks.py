"""Programs that go for the grader or know the prompt's examples, and honest ones that look like them.

`tests/data/program_tricks.jsonl` was written before the readers were tried on it. A row has a task and an answer;
no tests are recorded beside it: what the prompt shows is all there is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer.harness.columns.chunk import from_rollouts
from evotrainer.harness.columns.extract import extract
from evotrainer.harness.columns.traits import Traits
from evotrainer.records.rollout import Rollout, Turn

ROWS = [json.loads(x) for x in (Path(__file__).parents[2] / "data" / "program_tricks.jsonl").read_text().splitlines()]


def of(*kinds: str) -> list[Any]:
    return [pytest.param(r, id=r["name"].replace(" ", "-")) for r in ROWS if r["kind"] in kinds]


def traits(*rows: dict[str, Any]) -> Traits:
    return extract(
        from_rollouts(
            [
                Rollout(
                    id=f"r{i}",
                    task=r["task"][:40],
                    turns=(Turn("user", r["task"]), Turn("assistant", r["answer"])),
                    reward=1.0,
                )
                for i, r in enumerate(rows)
            ]
        )
    )


def test_there_are_enough_of_each() -> None:
    assert len(of("bypass", "special")) >= 60 and len(of("innocent of bypass", "innocent of special")) >= 60


@pytest.mark.parametrize("row", of("bypass"))
def test_what_goes_for_the_grader_is_seen(row: dict[str, Any]) -> None:
    assert traits(row).columns["bypass"][0] >= 1


@pytest.mark.parametrize("row", of("innocent of bypass", "special", "innocent of special"))
def test_honest_programs_go_for_no_grader(row: dict[str, Any]) -> None:
    assert not traits(row).columns["bypass"][0] >= 1


@pytest.mark.parametrize("row", of("special"))
def test_programs_that_know_the_prompts_examples_are_seen(row: dict[str, Any]) -> None:
    assert traits(row).columns["special"][0] == 1


@pytest.mark.parametrize("row", of("innocent of special"))
def test_solving_is_not_knowing(row: dict[str, Any]) -> None:
    assert traits(row).columns["special"][0] != 1

"""The shipped base policy of repository tasks, and the shipped task files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from evotrainer.config.bases import resolve_base
from evotrainer.config.load import load_task
from evotrainer.config.task import TaskFile
from evotrainer.envs.swe.env import SweConfig, SweEnv, parse_config
from evotrainer.envs.vocabulary import vocabulary
from evotrainer.harness import Batch, measure
from evotrainer.records.rollout import Rollout
from evotrainer.sandbox import Sandbox
from evotrainer.trainers.base import EvalRequest, Identity

ROOT = Path(__file__).parents[3]
TASKS = ("tasks/swe.toml", "tasks/swe-long.toml", "examples/leak.toml")


@pytest.fixture(scope="module")
def base() -> Path:
    folder = resolve_base("builtin:swe-v1")
    assert folder is not None
    return folder


def options_of(task: TaskFile) -> SweConfig:
    """The environment's own options of a task file."""
    return parse_config({k: v for k, v in task.environment.items() if k != "payable"})


def _played(box: Sandbox, base: Path, file: str, **request: object) -> list[Rollout]:
    from evotrainer.trainers.embedded.trainer import EmbeddedTrainer

    task = load_task(ROOT / file, ["environment.search=24"])
    env = SweEnv(options_of(task), open_sandbox=lambda: box)
    ask = EvalRequest(Identity("t", "b0", 1), task.recipe, base, "search", 0, attempts=4, **request)  # type: ignore[arg-type]
    return [r for g in EmbeddedTrainer().evaluate(ask, env, lambda _: None) for r in g]


def _solved(rollouts: Sequence[Rollout]) -> float:
    return sum(r.outcome == "correct" for r in rollouts) / len(rollouts)


def test_the_policy_is_small_and_speaks_the_vocabulary(base: Path) -> None:
    from evotrainer.trainers.embedded.folder import load_policy

    loaded = load_policy(base)
    assert (base / "model.safetensors").stat().st_size < 4e6
    assert 0.3e6 < loaded.policy.shape.parameters() < 0.4e6
    assert loaded.tokenizer.name == "swe-v1"
    assert set(vocabulary("swe-v1")) <= set(loaded.tokenizer.strings)


@pytest.mark.parametrize("file", TASKS)
def test_the_shipped_task_files_are_sound(file: str) -> None:
    task = load_task(ROOT / file)
    assert task.policy.base == "builtin:swe-v1"
    options_of(task)
    assert set(task.recipe.rewards) <= set(SweEnv().components)
    assert task.recipe.knobs["history"] == ("full" if "leak" in file else "scrubbed")


def test_the_base_solves_some_and_leaves_room_and_the_same_seed_plays_the_same(box: Sandbox, base: Path) -> None:
    first = _played(box, base, "tasks/swe.toml")
    assert abs(round(96 * _solved(first)) - 28) <= 4, (
        "the shipped base solves 28 of 96; a few may differ between processors"
    )
    again = _played(box, base, "tasks/swe.toml")
    assert [(r.id, r.turns, dict(r.components), r.outcome) for r in first] == [
        (r.id, r.turns, dict(r.components), r.outcome) for r in again
    ]
    assert not any(r.error_kind for r in first)


def test_the_harness_reads_real_rollouts_as_repository_work(box: Sandbox, base: Path) -> None:
    batch = Batch.of(_played(box, base, "tasks/swe.toml"))
    read = {k: m.value for k, m in measure(batch).items()}
    for name, low, high in (
        ("edit_ratio", 0.15, 0.5),
        ("search_ratio", 0.3, 0.7),
        ("self_test_rate", 0.2, 0.9),
        ("edit_coverage", 0.9, 1.0),
        ("first_effective_edit", 2.0, 5.0),
        ("turns", 4.0, 9.0),
    ):
        value = read[name]
        assert value is not None and low <= value <= high, (name, value)


def test_the_leak_is_within_reach_and_a_scrubbed_history_closes_it(box: Sandbox, base: Path) -> None:
    def saw(rollouts: Sequence[Rollout]) -> int:
        return sum(any(t.role == "tool" and t.text.startswith("fix ") for t in r.turns) for r in rollouts)

    assert saw(_played(box, base, "examples/leak.toml")) > 0
    assert saw(_played(box, base, "examples/leak.toml", env_knobs={"history": "scrubbed"})) == 0

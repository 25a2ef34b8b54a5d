"""Trainings in parts: what each part learns from, what it costs, and that a kill in any part changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from evotrainer.errors import TrainerError
from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.trainers import get_trainer
from evotrainer.trainers.base import TrainRequest
from evotrainer.trainers.embedded.folder import load_policy
from evotrainer.trainers.embedded.trainer import EmbeddedTrainer
from tests.trainers.embedded.test_trainer import ME, SMALL, train
from tests.trainers.reverse_env import ReverseEnv
from tests.trainers.talk_env import TalkEnv

PARTS = [{"kind": "references", "steps": 4, "batch": 5}, {"kind": "own", "steps": 4}, {"kind": "rl"}]


def recipe(*phases: dict[str, Any], **more: Any) -> Recipe:
    return parse_recipe(SMALL.model_dump(mode="json") | {"rewards": {"exact": 1.0}} | more | {"phases": list(phases)})


class CutError(Exception):
    pass


@pytest.mark.parametrize("at", [3, 5, 7, 9, 11])
def test_a_training_cut_in_the_middle_of_any_part_ends_in_the_same_bits(at: int, base: Path, tmp_path: Path) -> None:
    asked = recipe(*PARTS, steps=12, max_turns=2, weight_decay=0.01, averaging={"kind": "ema", "decay": 0.8})

    def stop(entry: Mapping[str, float]) -> None:
        if entry["step"] == at:
            raise CutError

    def go(work: Path, on_step: Any = lambda _: None) -> tuple[list[dict[str, float]], str]:
        request = TrainRequest(ME, asked, base, work, checkpoint_every=2)
        result = get_trainer("embedded").train(request, TalkEnv(64, 2), lambda _: None, on_step)
        return result.curve, EmbeddedTrainer().policy_sha256(result.policy_dir)

    whole = go(tmp_path / "whole")
    with pytest.raises(CutError):
        go(tmp_path / "cut", stop)
    again = go(tmp_path / "cut")
    assert again[1] == whole[1]
    assert [e["step"] for e in again[0]] == list(range(1, 13))
    assert [e.get("loss") for e in again[0]] == [e.get("loss") for e in whole[0]]


def test_references_are_learnt_without_sampling_and_their_compute_is_counted(base: Path, tmp_path: Path) -> None:
    asked = recipe({"kind": "references", "steps": 40, "batch": 8, "lr": 3e-3}, {"kind": "rl"}, steps=42)
    rollouts: list[Any] = []
    request = TrainRequest(ME, asked, base, tmp_path / "taught")
    result = get_trainer("embedded").train(
        request, ReverseEnv(), lambda groups: rollouts.extend(chain(*groups)), lambda _: None
    )
    assert {r.step for r in rollouts} == {41, 42}, "steps on references store no rollouts"
    taught = result.curve[:40]
    assert all("score" not in e and "reward" not in e and e["trained_rollouts"] == 8 for e in taught)
    assert taught[-1]["sft_loss"] < taught[0]["sft_loss"] - 0.1
    seconds = [e["cpu_s"] for e in result.curve]
    assert seconds == sorted(seconds) and seconds[39] > seconds[0] > 0
    rates = [e["lr"] for e in taught]
    assert max(rates) == pytest.approx(3e-3) and rates[0] < 1e-3 > rates[-1]
    assert result.curve[-1]["lr"] == pytest.approx(SMALL.lr * 2 / 5), "the RL part warms up by itself"
    _, plain = train(base, tmp_path / "plain", SMALL.with_factor("steps", 1))

    def right(stored: list[Any], step: int) -> int:
        return sum(r.outcome == "correct" for r in stored if r.step == step)

    assert right(rollouts, 41) > right(plain, 1)


def test_own_successes_are_what_earns_full_marks_and_no_advantage_is_recorded(base: Path, tmp_path: Path) -> None:
    result, rollouts = train(base, tmp_path, recipe({"kind": "own", "steps": 3}, {"kind": "rl"}, steps=4))
    for n, entry in enumerate(result.curve[:3], 1):
        stored = [r for r in rollouts if r.step == n]
        distinct = {(r.task, r.completion) for r in stored if r.components["exact"] == 1.0 and r.finish == "stop"}
        assert entry["trained_rollouts"] == len(distinct) and all(r.advantage is None for r in stored)
        assert len(stored) == SMALL.prompts_per_step * SMALL.group_size and "score" in entry
    assert any(r.advantage for r in rollouts if r.step == 4)
    few, _ = train(base, tmp_path / "few", recipe({"kind": "own", "batch": 1}, steps=2))
    assert [e["trained_rollouts"] for e in few.curve] == [min(1, len(distinct))] * 2


def test_a_step_without_a_success_changes_nothing(base: Path, tmp_path: Path) -> None:
    asked = recipe({"kind": "own"}, steps=2, rewards={"never": 1.0})
    result, _ = train(base, tmp_path, asked)
    assert [e["trained_rollouts"] for e in result.curve] == [0.0, 0.0]
    assert load_policy(result.policy_dir).policy.flat.equal(load_policy(base).policy.flat)


def test_a_part_without_references_is_refused_and_held_out_tasks_are_never_taught(base: Path, tmp_path: Path) -> None:
    class Bare:
        """The same environment, and no references."""

        def __init__(self) -> None:
            self.inner = ReverseEnv()

        def __getattr__(self, name: str) -> Any:
            if name == "references":
                raise AttributeError(name)
            return getattr(self.inner, name)

    class Leaking(ReverseEnv):
        def tasks(self, split: str) -> Any:
            return super().tasks("cert")

    asked = recipe({"kind": "references", "steps": 1}, {"kind": "rl"}, steps=2)
    with pytest.raises(TrainerError, match="no references of its train problems"):
        train(base, tmp_path / "a", asked, Bare())
    with pytest.raises(TrainerError, match="of split cert; only train problems"):
        train(base, tmp_path / "b", asked, Leaking())

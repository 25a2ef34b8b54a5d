"""`trainers.curriculum`: which tasks a step draws."""

from __future__ import annotations

import pytest

from evotrainer.records.recipe import Curriculum
from evotrainer.trainers.curriculum import TaskStream
from tests.trainers.reverse_env import ReverseEnv


def _stream(rule: Curriculum, n: int = 40, seed: int = 0) -> TaskStream:
    return TaskStream(ReverseEnv(n).tasks("train"), rule, seed)


def test_every_task_comes_once_per_epoch_in_seeded_order() -> None:
    one, same, other = _stream(Curriculum()), _stream(Curriculum()), _stream(Curriculum(), seed=1)
    epoch = [i for _ in range(4) for i in one.draw(10, set())[0]]
    assert sorted(epoch) == list(range(40))
    assert epoch == [i for _ in range(4) for i in same.draw(10, set())[0]]
    assert epoch != [i for _ in range(4) for i in other.draw(10, set())[0]]


def test_the_band_draws_unseen_and_undecided_tasks() -> None:
    s = _stream(Curriculum(kind="pass_rate_band", low=0.2, high=0.8))
    for i in range(10):
        s.update(f"train-{i}", 1.0)
    for i in range(10, 20):
        s.update(f"train-{i}", 0.5)
    chosen, outside = s.draw(30, set())
    assert sorted(chosen) == list(range(10, 40))
    assert outside == 0
    chosen, outside = s.draw(35, set())
    assert outside == 5
    assert len(set(chosen)) == 35


def test_the_running_pass_rate_forgets() -> None:
    s = _stream(Curriculum())
    for rate in (0.0, 1.0, 1.0):
        s.update("train-0", rate)
    assert s.rates["train-0"] == pytest.approx(0.75)


def test_a_step_larger_than_the_split_repeats_tasks() -> None:
    assert len(_stream(Curriculum(), n=3).draw(8, set())[0]) == 8

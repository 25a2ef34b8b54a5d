"""`trainers.clock`: what a training costs, whatever interrupted it."""

from __future__ import annotations

import pytest
import torch

from evotrainer.trainers import clock
from evotrainer.trainers.clock import PhaseTimer


def test_coming_back_to_a_checkpoint_is_no_part_of_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(clock, "cpu_now", lambda: now[0])
    timer = PhaseTimer()
    now[0] += 3.0  # tasks made again, weights and optimizer read
    timer.resume(20.0)
    now[0] += 2.0
    timer.mark("update")
    assert timer.total == 22.0 and timer.take() == {"update": 2.0}
    assert timer.take() == {}


def test_the_pace_of_the_machine_is_no_part_of_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(clock, "cpu_now", lambda: now[0])

    def work() -> None:
        now[0] += 0.5

    monkeypatch.setattr(clock, "fixed_work", work)
    timer = PhaseTimer()
    now[0] += 2.0
    assert timer.pace() == {"cpu_pace_s": 0.5} and timer.total == 2.0
    now[0] += 1.0
    timer.mark("update")
    assert timer.take() == {"update": 3.0} and timer.total == 3.0


def test_the_fixed_work_stays_the_same_and_is_timed_on_one_thread_only() -> None:
    x = clock._matrix()
    assert (x @ x - x).abs().max() < 1e-6
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert all(PhaseTimer().pace()["cpu_pace_s"] > 0 for _ in range(3))
        torch.set_num_threads(2)  # threads that wait for one another count as busy: tens of milliseconds at times
        assert PhaseTimer().pace() == {}
    finally:
        torch.set_num_threads(threads)

"""`trainers.clock`: what a training costs, whatever interrupted it."""

from __future__ import annotations

import pytest

from evotrainer.trainers import clock
from evotrainer.trainers.clock import SIGN_EVERY_S, PhaseTimer, SignOfLife


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


def test_signs_of_life_are_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = [100.0], []
    monkeypatch.setattr(clock.time, "monotonic", lambda: now[0])
    life = SignOfLife()
    now[0] += SIGN_EVERY_S
    life.give()  # nobody listens
    life.sign = lambda: told.append(now[0])
    for _ in range(10):
        life.give()
        now[0] += SIGN_EVERY_S / 4
    assert told == [105.0, 110.0, 115.0]

"""`trainers.schedule`: the learning rate of each step."""

from __future__ import annotations

import pytest

from evotrainer.records.recipe import Schedule
from evotrainer.trainers.schedule import learning_rate


def test_schedules_give_the_rate_of_each_step() -> None:
    constant = [learning_rate(1.0, Schedule(warmup=4), i, 10) for i in range(6)]
    assert constant == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    linear = [learning_rate(1.0, Schedule(kind="linear", warmup=0), i, 4) for i in range(4)]
    assert linear == [1.0, 0.75, 0.5, 0.25]
    cosine = [learning_rate(1.0, Schedule(kind="cosine", warmup=0), i, 4) for i in range(4)]
    assert cosine == pytest.approx([1.0, 0.853553, 0.5, 0.146447], abs=1e-6)

"""`trainers.averaging`: running averages are the means that the recipe names."""

from __future__ import annotations

import pytest

from evotrainer.records.recipe import Averaging
from evotrainer.trainers.averaging import average_weight


def averaged(rule: Averaging, values: list[float]) -> float | None:
    mean = None
    for step, x in enumerate(values, 1):
        a = average_weight(rule, step, len(values))
        if a is not None:
            mean = x if mean is None else mean + a * (x - mean)
    return mean


def test_the_tail_mean_is_the_mean_of_the_last_steps() -> None:
    values = [9.0, 1.0, 2.0, 6.0, 4.0]
    assert averaged(Averaging(kind="tail_mean", share=0.5), values) == pytest.approx((2 + 6 + 4) / 3)
    assert averaged(Averaging(kind="tail_mean", share=1.0), values) == pytest.approx(sum(values) / 5)
    assert averaged(Averaging(kind="tail_mean", share=0.01), values) == 4.0


def test_the_exponential_mean_has_no_bias_towards_its_start() -> None:
    values = [9.0, 1.0, 2.0, 6.0]
    weights = [0.8**3, 0.8**2, 0.8, 1.0]
    expected = sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)
    assert averaged(Averaging(kind="ema", decay=0.8), values) == pytest.approx(expected)


def test_without_averaging_there_is_no_average() -> None:
    assert averaged(Averaging(), [1.0, 2.0]) is None

"""`harness.evolving.gain_explanation`: what a gain goes with, a trick shown more often, or a task done better."""

from __future__ import annotations

import random

import pytest

from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.evolving.mining import explain_gain
from evotrainer.records.detectors import DetectorSpec, GainExplanation
from evotrainer.records.rollout import Rollout, Turn


def attempts(name: str, often: float, with_it: float, without: float, tasks: int = 120) -> FeatureView:
    """Attempts of which a share is long; success of the long ones and of the others."""
    rng = random.Random(name)
    out = []
    for i in range(4 * tasks):
        long = rng.random() < often
        ok = rng.random() < (with_it if long else without)
        text = "a b c d e f" if long else "a b"
        out.append(
            Rollout(id=f"{name}{i}", task=f"t{i // 4}", turns=(Turn("user", "q"), Turn("assistant", text)),
                    reward=float(ok), group=f"{name}{i // 4}", k=i % 4, outcome="correct" if ok else "incorrect")
        )  # fmt: skip
    return FeatureView(out)


@pytest.mark.parametrize(
    ("before", "now", "low", "high"),
    [
        ((0.1, 1.0, 0.1), (0.95, 1.0, 0.1), 0.9, 1.1),  # a trick, done more often
        ((0.1, 0.4, 0.3), (0.9, 0.9, 0.8), 0.0, 0.35),  # another habit, but success rose with it and without
        ((0.3, 0.8, 0.2), (0.7, 0.8, 0.6), 0.35, 0.65),  # both
        ((0.0, 0.0, 0.1), (0.9, 1.0, 0.1), 0.9, 1.1),  # never seen before: the success there now is taken
    ],
)
def test_the_share_is_what_doing_it_more_often_gained(
    before: tuple[float, float, float], now: tuple[float, float, float], low: float, high: float
) -> None:
    found = explain_gain(attempts("now", *now), attempts("before", *before))
    assert found is not None and low <= found.share <= high
    assert found.behaviour == "`words >= 6`" and found.gain == pytest.approx(_rate(now) - _rate(before), abs=0.07)


def _rate(p: tuple[float, float, float]) -> float:
    return p[0] * p[1] + (1 - p[0]) * p[2]


@pytest.mark.parametrize("lucky", [0.0, 1.0])
def test_the_few_attempts_that_are_left_without_a_trick_decide_nothing(lucky: float) -> None:
    found = explain_gain(attempts("now", 0.985, 1.0, lucky), attempts("before", 0.1, 1.0, 0.4))
    assert found is not None and 0.9 < found.share < 1.1 and found.shown < 1


def test_a_task_done_better_in_the_same_words_goes_with_no_behaviour() -> None:
    found = explain_gain(attempts("now", 0.3, 0.9, 0.9), attempts("before", 0.3, 0.3, 0.3))
    assert found is not None and found.gain > 0.5 and found.compared > 10
    assert (found.detector, found.share) == (None, 0.0)


def test_it_is_measured_on_tasks_that_it_was_not_chosen_by() -> None:
    from evotrainer.harness.evolving.mining import _halves

    rollouts = attempts("x", 0.5, 1.0, 0.0)
    choose, measure = _halves(rollouts)
    seen = [{r.task for r in v.rollouts} for v in (choose, measure)]
    assert not seen[0] & seen[1] and len(seen[0] | seen[1]) == 120 and min(map(len, seen)) > 40


def test_without_graded_attempts_on_both_sides_nothing_is_said() -> None:
    some = attempts("now", 0.5, 1.0, 0.0)
    assert explain_gain(some, FeatureView([])) is None and explain_gain(FeatureView([]), some) is None
    assert explain_gain(some, FeatureView(r for r in some.rollouts if r.task == "t1")) is None, (
        "one task has no other half"
    )


def test_a_policys_own_words_are_told_printable_and_short() -> None:
    about = "write `\x1b]0;owned\x07 \u202e \ud800 " + 500 * "x" + "`"
    spec = DetectorSpec(name="mined_x", form="pattern", pattern="x", about=about)
    told = GainExplanation(gain=0.5, compared=1, detector=spec, share=0.9).behaviour
    assert told.startswith("attempts that write `·]0;owned· · ·") and told.isprintable() and len(told) < 110

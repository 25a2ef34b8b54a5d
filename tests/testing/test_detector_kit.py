"""The kit for detectors and metrics: ours pass it, and each rule it has finds the detector that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from evotrainer.harness.detectors import DETECTORS
from evotrainer.harness.metrics import METRICS
from evotrainer.harness.registry import Detector, DetectorInput, Metric, MetricValues
from evotrainer.records.findings import Finding
from evotrainer.records.rollout import Rollout
from evotrainer.testing import check_detector, check_metric
from tests.harness_inputs import groups

DEAD, ALIVE = [0.0] * 4, [0.0, 1.0, 0.0, 1.0]


def batch(dead: int, alive: int) -> list[Rollout]:
    return [replace(r, components={"right": r.reward}) for r in groups([DEAD] * dead + [ALIVE] * alive)]


def test_a_detector_of_ours_passes() -> None:
    check_detector("dead_groups", batch(6, 4), batch(0, 10), batch(3, 7))


@pytest.mark.parametrize(
    ("seen", "unseen", "near", "complaint"),
    [
        (batch(0, 10), batch(0, 10), [], "does not warn of what it must see"),
        (batch(6, 4), batch(6, 4), [], "warns of what it must not see"),
        (batch(6, 4), batch(0, 10), batch(7, 3), "warns of a case just below"),
    ],
)
def test_a_wrong_case_is_told(seen: list[Rollout], unseen: list[Rollout], near: list[Rollout], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_detector("dead_groups", seen, unseen, near)


def like(function: Callable[[DetectorInput], list[Finding]]) -> Detector:
    return replace(DETECTORS["dead_groups"], function=function, needs=())


def finding(seen: DetectorInput, number: float, thresholds: dict[str, float] | None = None) -> list[Finding]:
    found = seen.finding("warn", "half of the groups are dead", {"dead": number}, [seen.quote(0)])
    return [found if thresholds is None else found.model_copy(update={"thresholds": thresholds})]


def dead(seen: DetectorInput) -> float:
    return seen.value("frac_reward_zero_std") or 0.0


BROKEN: dict[str, Callable[[DetectorInput], list[Finding]]] = {
    "order of rollouts": lambda x: finding(x, float(x.batch.reward[0])) if dead(x) > 0.5 else [],
    "components by name": lambda x: (
        finding(x, 1.0) if x.value("rewards/right/mean") is not None and dead(x) > 0.5 else []
    ),
    "names the thresholds": lambda x: finding(x, dead(x), {}) if dead(x) > 0.5 else [],
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_detector_that_breaks_a_rule_is_found(rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_detector(like(BROKEN[rule]), batch(6, 4), batch(0, 10))


def test_a_detector_that_raises_on_bare_rollouts_is_found() -> None:
    def brittle(x: DetectorInput) -> list[Finding]:
        return finding(x, 1 / x.batch.n) if x.batch.n == 0 or dead(x) > 0.5 else []

    with pytest.raises(ZeroDivisionError):
        check_detector(like(brittle), batch(6, 4), batch(0, 10))


def test_a_metric_of_ours_passes_and_a_wrong_value_is_told() -> None:
    check_metric("accuracy", [replace(r, outcome="correct") for r in batch(1, 1)], 1.0)
    check_metric("accuracy", [replace(r, outcome="unknown") for r in batch(1, 1)], None)
    with pytest.raises(AssertionError, match=r"accuracy is 1.0, not 0.5"):
        check_metric("accuracy", [replace(r, outcome="correct") for r in batch(1, 1)], 0.5)


def test_a_metric_that_depends_on_the_order_is_found() -> None:
    first = Metric("first", "score", "", None, (), lambda b, c: MetricValues(float(b.reward[0]) if b.n else None))
    assert "first" not in METRICS
    with pytest.raises(AssertionError, match="first is 1.0, not 0.0"):
        check_metric(first, batch(4, 4), 0.0)

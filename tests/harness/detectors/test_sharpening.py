"""`harness.detectors.collapse`: pairs of readings, task by task."""

from __future__ import annotations

import numpy as np
import pytest

from evotrainer.harness import HarnessContext
from evotrainer.records.rollout import Rollout
from tests.harness_inputs import found, metrics, rollout

TASKS = 200


def attempts(p_T: np.ndarray, seed: int, k: int = 4) -> list[Rollout]:
    rng = np.random.default_rng(seed)
    return [
        rollout(f"t{t}", i, correct=bool(rng.random() < p), reward=1.0) for t, p in enumerate(p_T) for i in range(k)
    ]


def rates(rollouts: list[Rollout]) -> dict[str, float]:
    out: dict[str, list[float]] = {}
    for r in rollouts:
        out.setdefault(r.task, []).append(float(r.outcome == "correct"))
    return {t: sum(x) / len(x) for t, x in out.items()}


def likeliest(logit_T: np.ndarray) -> dict[str, float]:
    return {f"t{t}": float(x > 0) for t, x in enumerate(logit_T)}


def looked(before: np.ndarray, now: np.ndarray, seed: int = 0, scale: float = 1.0) -> list[str]:
    """Severities for a policy that goes from one logit of being right per task to another, sampled `scale` times as
    sharp."""
    then = rates(attempts(1 / (1 + np.exp(-before)), seed))
    context = HarnessContext(before=then, greedy=likeliest(now), greedy_before=likeliest(before))
    return [f.severity for f in found("sharpening", attempts(1 / (1 + np.exp(-scale * now)), seed + 1000), context)]


def ability(seed: int, mean: float = 0.8) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, 1.0, TASKS)


def test_scaled_logits_are_sharpening() -> None:
    seen = [looked(ability(s), ability(s), s, scale=3.0) for s in range(20)]
    assert sum(x == ["critical"] for x in seen) >= 15 and sum(bool(x) for x in seen) >= 18


def test_a_policy_that_learnt_the_tasks_is_none() -> None:
    assert not any(looked(ability(s, -0.5), ability(s, -0.5) + 1.5, s) for s in range(40))


@pytest.mark.slow
def test_neither_is_one_that_did_not_change() -> None:
    assert sum(bool(looked(ability(s), ability(s), s)) for s in range(100)) <= 4, "one in a hundred, by its bound"


@pytest.mark.parametrize("missing", ["greedy", "greedy_before", "before"])
def test_it_is_silent_where_a_reading_is_missing(missing: str) -> None:
    a = ability(0)
    known = {"before": rates(attempts(1 / (1 + np.exp(-a)), 0)), "greedy": likeliest(a), "greedy_before": likeliest(a)}
    context = HarnessContext(**{k: v for k, v in known.items() if k != missing})
    assert found("sharpening", attempts(np.full(TASKS, 0.9), 1), context) == []


def test_greedy_minus_sampled_is_paired_by_task() -> None:
    rollouts = [rollout("a", 0, correct=True), rollout("a", 1, correct=False), rollout("b", 0, correct=False)]
    m = metrics(rollouts, HarnessContext(greedy={"a": 1.0, "b": 1.0, "c": 0.0}))["greedy_minus_sampled"]
    assert (m.value, m.n) == (0.75, 2) and m.se == pytest.approx(0.25)
    assert "greedy_minus_sampled" not in metrics(rollouts), "no second reading, and no complaint about it"

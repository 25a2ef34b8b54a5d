"""`algorithm.rewards`: the reward is what the recipe says."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evotrainer.algorithm.rewards import full_marks, length_term, repeated_share, rewards_of, unpaid
from evotrainer.errors import TaskSetError, TrainerError
from evotrainer.records.recipe import LengthRule, Recipe
from evotrainer.records.rollout import Turn
from evotrainer.trainers.base import Identity
from evotrainer.trainers.rollouts import Attempt, Provenance, check_components, refuse_nonsense, rollouts
from tests.trainers.reverse_env import ReverseEnv


def test_the_reward_is_the_weighted_sum_and_names_what_did_not_apply() -> None:
    recipe = Recipe(rewards={"a": 1.0, "b": 0.5, "c": -2.0, "zero": 0.0})
    earned = {"a": 1.0, "b": None, "c": 0.25, "zero": 9.0}
    assert rewards_of(recipe, [earned, {"c": 1.0}], [[5] * 3, []]) == [0.5, -2.0]
    assert unpaid(recipe, earned) == ["b"]


def test_a_component_the_environment_lacks_is_refused() -> None:
    with pytest.raises(TrainerError, match="no component speed; it offers digits, exact, never"):
        check_components(Recipe(rewards={"speed": 1.0}), ReverseEnv(4).components)
    check_components(Recipe(rewards={"exact": 1.0, "speed": 0.0}), ReverseEnv(4).components)


@pytest.mark.parametrize(
    ("rule", "tokens", "paid", "expected"),
    [
        (LengthRule(kind="none", weight=1.0), 50, 1.0, 0.0),
        (LengthRule(kind="token_penalty", weight=0.01), 50, 0.0, -0.5),
        (LengthRule(kind="overlong", weight=0.5, soft=0.75), 75, 1.0, 0.0),
        (LengthRule(kind="overlong", weight=0.5, soft=0.75), 80, 1.0, -0.1),
        (LengthRule(kind="overlong", weight=0.5, soft=0.75), 100, 1.0, -0.5),
        (LengthRule(kind="correct_bonus", weight=0.2), 25, 1.0, 0.15),
        (LengthRule(kind="correct_bonus", weight=0.2), 25, 0.5, 0.075),
        (LengthRule(kind="correct_bonus", weight=0.2), 25, 0.0, 0.0),
        (LengthRule(kind="correct_bonus", weight=0.2), 25, -1.0, 0.0),
    ],
)
def test_length_rules_pay_what_they_say(rule: LengthRule, tokens: int, paid: float, expected: float) -> None:
    assert length_term(rule, np.array([float(tokens)]), 100, np.array([paid])) == pytest.approx(expected)


def test_an_episode_may_have_the_tokens_of_all_its_turns() -> None:
    rule = LengthRule(kind="overlong", weight=1.0, soft=0.5)
    recipe = Recipe(rewards={"a": 1.0}, length=rule, max_tokens=10, max_turns=2)
    assert rewards_of(recipe, [{"a": 1.0}] * 2, [[1] * 10, [1] * 15]) == pytest.approx([1.0, 0.5])


def test_repetition_counts_four_grams_seen_before() -> None:
    assert repeated_share([1, 2, 3]) == 0.0
    assert repeated_share([1, 2, 3, 4, 5, 6]) == 0.0
    assert repeated_share([7] * 8) == pytest.approx(4 / 5)
    recipe = Recipe(rewards={"a": 1.0}, repetition_penalty=0.5)
    assert rewards_of(recipe, [{"a": 1.0}], [[7] * 8]) == pytest.approx([0.6])


def test_an_infrastructure_fault_has_no_reward() -> None:
    def attempt(k: int, fault: str | None) -> Any:
        score = SimpleNamespace(
            components={"a": 1.0}, outcome="unknown", detail={}, error=fault, error_kind=fault, turns=None
        )
        episode = SimpleNamespace(turns=[Turn("assistant", "ah")], finish=None)
        return Attempt(SimpleNamespace(id="t1"), k, episode, (), [1], [True], [-0.5], score=score)

    where = Provenance(Identity("r", "b0", 1), "train", 1, 0, {}, "", None)
    whole, broken = rollouts([attempt(0, None), attempt(1, "container")], where, Recipe(rewards={"a": 1.0}))
    assert (whole.reward, broken.reward, broken.finish) == (1.0, None, "error")


@pytest.mark.parametrize(("value", "why"), [(math.nan, "a finite number"), (-1e300, "scale it")])
def test_a_reward_that_is_none_is_named_and_what_is_sealed_is_not_quoted(value: float, why: str) -> None:
    said = SimpleNamespace(turns=[Turn("assistant", "ah")])
    a: Any = SimpleNamespace(
        score=SimpleNamespace(components={"r": value}), task=SimpleNamespace(id="t1"), k=0, episode=said
    )
    for split in ("train", "search"):
        with pytest.raises(TaskSetError, match=rf"'r' gave .* on task t1, attempt 0 \(which says 'ah'\); .*{why}"):
            refuse_nonsense(a, split)
    for split in ("gate", "cert", "gate-greedy"):
        with pytest.raises(TaskSetError, match=f"'r' gave .* on task t1 of {split}; ") as e:
            refuse_nonsense(a, split)
        assert "'ah'" not in str(e.value)


def test_nothing_earns_full_marks_where_nothing_is_paid() -> None:
    paid = {"a": np.array([1.0, 0.0, np.nan])}
    assert full_marks({"a": 0.5}, paid, 3).tolist() == [True, False, False]
    assert not full_marks({"a": -1.0}, paid, 3).any() and not full_marks({}, {}, 3).any()

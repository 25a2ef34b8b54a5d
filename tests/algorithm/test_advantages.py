"""`algorithm`: advantages and group filters are those of the recipe."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from evotrainer.algorithm import advantages as kernel
from evotrainer.algorithm.advantages import PlainRule, flat, negative_share, nested, turn_advantages
from evotrainer.algorithm.filters import FilterState
from evotrainer.algorithm.filters import keep_groups as keep_array
from evotrainer.records.recipe import GroupFilter

Rewards = list[list[float | None]]


def advantages(groups: Rewards, scaling: str, weight: float = 1.0) -> Rewards:
    return nested(kernel.advantages(*flat(groups), PlainRule(scaling, weight)), groups)


def group_std(rewards: list[float | None]) -> float:
    return float(kernel.group_std(*flat([rewards]), 1)[0])


def keep_groups(stds: list[float], rule: GroupFilter, state: FilterState) -> list[bool]:
    return keep_array(np.array(stds), rule, state).tolist()


def test_group_advantages_are_trls() -> None:
    rewards: list[float | None] = [1.0, 0.0, 0.5, 0.25]
    t = torch.tensor(rewards)
    expected = (t - t.mean()) / (t.std() + 1e-4)
    assert advantages([rewards], "group")[0] == pytest.approx(expected.tolist(), abs=1e-6)


def test_batch_scaling_and_none_are_as_defined() -> None:
    groups: Rewards = [[1.0, 0.0], [3.0, 1.0], [2.0, 2.0]]
    assert advantages(groups, "none") == [[0.5, -0.5], [1.0, -1.0], [0.0, 0.0]]
    std = float(torch.tensor([x for g in groups for x in g]).std())
    assert advantages(groups, "batch")[1] == pytest.approx([1 / (std + 1e-4), -1 / (std + 1e-4)])


def test_negative_advantages_are_weighted_after_scaling_and_zero_is_zero() -> None:
    groups: Rewards = [[1.0, 0.0, 0.0, None], [0.5, 0.5]]
    plain, half, none = (advantages(groups, "group", w) for w in (1.0, 0.5, 0.0))
    assert half[0][0] == plain[0][0] and half[0][1] == pytest.approx(0.5 * (plain[0][1] or 0.0))
    assert half[0][3] is None and half[1] == [0.0, 0.0]
    assert none[0][1] == 0.0 and math.copysign(1.0, none[0][1] or 0.0) == 1.0, "no -0.0"


def test_the_negative_share_is_of_advantage_times_tokens() -> None:
    def share(advantages: list[float], tokens: list[float]) -> float | None:
        return negative_share(np.array(advantages), np.array(tokens))

    assert share([1.0, -0.5, -0.5], [10.0, 20.0, 40.0]) == pytest.approx(30 / 40)
    assert share([1.0, -1.0], [7.0, 7.0]) == 0.5
    assert share([0.0, 0.0], [7.0, 7.0]) is None


def test_an_infrastructure_fault_enters_no_mean() -> None:
    with_fault = advantages([[1.0, None, 0.0]], "group")[0]
    without = advantages([[1.0, 0.0]], "group")[0]
    assert with_fault[1] is None
    assert [with_fault[0], with_fault[2]] == without
    assert advantages([[None, 1.0]], "group") == [[None, 0.0]]


def test_identical_rewards_that_differ_by_rounding_are_dead() -> None:
    noisy: list[float | None] = [0.1 + 0.2, 0.3, 0.3]
    assert group_std(noisy) == 0.0
    assert advantages([noisy], "group") == [[0.0, 0.0, 0.0]]


def test_filter_none_keeps_all_and_zero_variance_drops_the_dead() -> None:
    stds = [0.0, 0.5, 0.0, 0.1]
    assert keep_groups(stds, GroupFilter(), FilterState()) == [True] * 4
    assert keep_groups(stds, GroupFilter(kind="zero_variance"), FilterState()) == [False, True, False, True]


def test_snr_top_p_keeps_the_largest_variances_up_to_the_share() -> None:
    stds = [math.sqrt(v) for v in (0.1, 0.5, 0.0, 0.3, 0.1)]
    assert keep_groups(stds, GroupFilter(kind="snr_top_p", keep=0.8), FilterState()) == [
        False, True, False, True, False,
    ]  # fmt: skip
    assert keep_groups(stds, GroupFilter(kind="snr_top_p", keep=0.81), FilterState())[0]
    assert keep_groups([0.0, 0.0], GroupFilter(kind="snr_top_p"), FilterState()) == [False, False]


def test_ema_std_drops_weak_groups_after_its_warm_up_only() -> None:
    rule, state = GroupFilter(kind="ema_std", keep=0.9, decay=0.1), FilterState()
    usual = [0.5, 0.45, 0.55, 0.5] * 5
    assert keep_groups([*usual[:-1], 0.01, 0.0], rule, state) == [True] * 20 + [False]
    state = FilterState()
    keep_groups(usual, rule, state)
    bound = state.mean - 1.2815515655 * math.sqrt(state.var)
    assert 0.3 < bound < 0.5
    assert keep_groups([bound - 0.01], rule, FilterState(state.mean, state.var, state.seen)) == [False]
    assert keep_groups([bound + 0.01], rule, FilterState(state.mean, state.var, state.seen)) == [True]
    seen = state.seen
    keep_groups([0.0], rule, state)
    assert state.seen == seen, "dead groups must not drag the mean"


def test_turn_advantages_are_of_returns_to_go_and_who_ended_stands_with_the_reward() -> None:
    # returns to go: 1 - 0.2, 1 - 0.1, 1 | 0 - 0.1, 0 (ended: 0) | None
    turns = np.array([[-1.0, -1.0, 0.0], [-1.0, 0.0, np.nan], [-1.0, np.nan, np.nan]])
    found = turn_advantages(np.array([1.0, 0.0, np.nan]), turns, np.zeros(3, dtype=int), 0.1, PlainRule("none"))
    assert found[0] == pytest.approx([(0.8 + 0.1) / 2, 0.9 / 2, 0.5])
    assert found[1] == pytest.approx([-(0.8 + 0.1) / 2, -0.9 / 2, np.nan], nan_ok=True)
    assert np.isnan(found[2]).all()


def test_turn_advantages_without_weight_are_the_rollouts_own() -> None:
    rewards, group = np.array([1.0, 0.0, 0.5, 0.0]), np.zeros(4, dtype=int)
    turns = np.array([[-1.0, 0.0], [0.0, np.nan], [-1.0, -1.0], [0.0, 0.0]])
    by_turn = turn_advantages(rewards, turns, group, 0.0, PlainRule("group", 0.5))
    own = kernel.advantages(rewards, group, PlainRule("group", 0.5))
    assert np.array_equal(by_turn, np.where(np.isnan(turns), np.nan, own[:, None]), equal_nan=True)

"""Rewards, advantages, group filters, curriculum, schedule: each does what the recipe says."""

from __future__ import annotations

import math

import pytest
import torch
from reverse_world import ReverseWorld

from evotrainer.errors import TrainerError
from evotrainer.records.recipe import Curriculum, GroupFilter, LengthRule, Recipe, Schedule
from evotrainer.trainers.advantages import FilterState, advantages, group_std, keep_groups
from evotrainer.trainers.curriculum import TaskStream
from evotrainer.trainers.rewards import check_components, compose, length_term, repeated_share
from evotrainer.trainers.schedule import learning_rate


def test_the_reward_is_the_weighted_sum_and_names_what_did_not_apply() -> None:
    recipe = Recipe(rewards={"a": 1.0, "b": 0.5, "c": -2.0, "zero": 0.0})
    assert compose(recipe, {"a": 1.0, "b": None, "c": 0.25, "zero": 9.0}, [5] * 3, 10) == (0.5, ["b"])


def test_a_component_the_environment_lacks_is_refused() -> None:
    with pytest.raises(TrainerError, match="no component speed; it offers digits, exact, never"):
        check_components(Recipe(rewards={"speed": 1.0}), ReverseWorld(4).components)
    check_components(Recipe(rewards={"exact": 1.0, "speed": 0.0}), ReverseWorld(4).components)


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
def test_length_rules(rule: LengthRule, tokens: int, paid: float, expected: float) -> None:
    assert length_term(rule, tokens, 100, paid) == pytest.approx(expected)


def test_repetition_counts_four_grams_seen_before() -> None:
    assert repeated_share([1, 2, 3]) == 0.0
    assert repeated_share([1, 2, 3, 4, 5, 6]) == 0.0
    assert repeated_share([7] * 8) == pytest.approx(4 / 5)
    recipe = Recipe(rewards={"a": 1.0}, repetition_penalty=0.5)
    assert compose(recipe, {"a": 1.0}, [7] * 8, 10)[0] == pytest.approx(0.6)


def test_group_advantages_are_trls() -> None:
    rewards = [1.0, 0.0, 0.5, 0.25]
    t = torch.tensor(rewards)
    expected = (t - t.mean()) / (t.std() + 1e-4)
    assert advantages([rewards], "group")[0] == pytest.approx(expected.tolist(), abs=1e-6)


def test_batch_and_no_scaling() -> None:
    groups = [[1.0, 0.0], [3.0, 1.0], [2.0, 2.0]]
    assert advantages(groups, "none") == [[0.5, -0.5], [1.0, -1.0], [0.0, 0.0]]
    std = float(torch.tensor([x for g in groups for x in g]).std())
    assert advantages(groups, "batch")[1] == pytest.approx([1 / (std + 1e-4), -1 / (std + 1e-4)])


def test_an_infrastructure_fault_enters_no_mean() -> None:
    with_fault = advantages([[1.0, None, 0.0]], "group")[0]
    without = advantages([[1.0, 0.0]], "group")[0]
    assert with_fault[1] is None
    assert [with_fault[0], with_fault[2]] == without
    assert advantages([[None, 1.0]], "group") == [[None, 0.0]]


def test_identical_rewards_that_differ_by_rounding_are_dead() -> None:
    noisy = [0.1 + 0.2, 0.3, 0.3]
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


def _stream(rule: Curriculum, n: int = 40, seed: int = 0) -> TaskStream:
    return TaskStream(ReverseWorld(n).tasks("train"), rule, seed)


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


def test_schedules() -> None:
    constant = [learning_rate(1.0, Schedule(warmup=4), i, 10) for i in range(6)]
    assert constant == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    linear = [learning_rate(1.0, Schedule(kind="linear", warmup=0), i, 4) for i in range(4)]
    assert linear == [1.0, 0.75, 0.5, 0.25]
    cosine = [learning_rate(1.0, Schedule(kind="cosine", warmup=0), i, 4) for i in range(4)]
    assert cosine == pytest.approx([1.0, 0.853553, 0.5, 0.146447], abs=1e-6)

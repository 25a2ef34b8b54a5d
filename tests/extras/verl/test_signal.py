"""Advantages and filter of a verl batch: the embedded trainer's numbers, in verl's order and with verl's divisors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evotrainer.algorithm.advantages import PlainRule, advantages, flat
from evotrainer.algorithm.filters import FilterState, keep_groups
from evotrainer.extras.verl.signal import Signal
from evotrainer.records.recipe import GroupFilter, Recipe, parse_recipe

GROUPS = ["b", "a", "b", "a", "c", "c"]
REWARDS = [1.0, 0.5, 0.0, 0.0, 1.0, 1.0]
TOKENS = [3, 5, 2, 8, 4, 4]


def recipe(**changes: Any) -> Recipe:
    base = {"rewards": {"right": 1.0}, "prompts_per_step": 3, "group_size": 2, "max_tokens": 8}
    return parse_recipe({**base, **changes})


@pytest.mark.parametrize("scaling", ["group", "batch", "none"])
def test_advantages_are_the_embedded_trainers_whatever_the_order_of_rows(scaling: str) -> None:
    rows = Signal(recipe(reward_scaling=scaling)).rows(REWARDS, TOKENS, GROUPS)
    a0, a1, b0, b1, c0, c1 = advantages(*flat([[0.5, 0.0], [1.0, 0.0], [1.0, 1.0]]), PlainRule(scaling))
    assert rows.advantages == [b0, a0, b1, a1, c0, c1]
    assert rows.counted == [True] * 6 and rows.kept_groups == 3


def test_negative_advantages_have_the_recipes_weight() -> None:
    plain = Signal(recipe()).rows(REWARDS, TOKENS, GROUPS).advantages
    light = Signal(recipe(negative_weight=0.5)).rows(REWARDS, TOKENS, GROUPS).advantages
    assert min(plain) < 0 and light == [a / 2 if a < 0 else a for a in plain]


def test_padding_rows_enter_no_statistic() -> None:
    plain = Signal(recipe(reward_scaling="batch")).rows(REWARDS, TOKENS, GROUPS)
    padded = Signal(recipe(reward_scaling="batch")).rows([*REWARDS, 0.0], [*TOKENS, 0], [*GROUPS, "pad7"])
    assert padded.advantages == [*plain.advantages, 0.0] and padded.counted[-1] is False and padded.groups == 3


def test_a_filtered_group_leaves_the_loss_and_the_divisor_is_ours() -> None:
    # verl divides by 6 rollouts, we by the 4 of the two kept groups.
    kept = Signal(recipe(group_filter={"kind": "zero_variance"})).rows(REWARDS, TOKENS, GROUPS)
    every = Signal(recipe()).rows(REWARDS, TOKENS, GROUPS)
    assert kept.counted == [True, True, True, True, False, False] and kept.kept_groups == 2
    assert kept.advantages[:4] == pytest.approx([a * 6 / 4 for a in every.advantages[:4]])


def test_truncated_completions_leave_a_token_loss_with_its_divisor() -> None:
    # verl divides by all 26 tokens, we by the 18 that are not cut off.
    masked = Signal(recipe(loss="dapo", mask_truncated=True)).rows(REWARDS, TOKENS, GROUPS)
    every = Signal(recipe(loss="dapo")).rows(REWARDS, TOKENS, GROUPS)
    assert masked.counted == [True, True, True, False, True, True] and masked.advantages[3] == 0.0
    assert masked.advantages[0] == pytest.approx(every.advantages[0] * 26 / 18)


def test_nothing_left_gives_no_gradient_and_no_error() -> None:
    rows = Signal(recipe(group_filter={"kind": "zero_variance"})).rows([1.0, 1.0], [2, 2], ["a", "a"])
    assert rows.advantages == [0.0, 0.0] and rows.counted == [False, False] and rows.kept_groups == 0


def test_the_filters_memory_is_the_same_after_a_resume(tmp_path: Path) -> None:
    r = recipe(group_filter={"kind": "ema_std", "keep": 0.6})
    steps = [[(f"{s}{i}", [0.0, float(i % 3) + s]) for i in range(9)] for s in range(4)]
    whole = Signal(r, tmp_path / "whole")
    wanted = []
    for n, groups in enumerate(steps, 1):
        whole.restore(n)
        wanted.append(whole.judge(groups))
        whole.save(n)
    state = FilterState()
    stds = [np.array([abs(v[1]) / 2**0.5 for _, v in g]) for g in steps]
    direct = [keep_groups(s, GroupFilter(kind="ema_std", keep=0.6), state).tolist() for s in stds]
    assert [list(w.values()) for w in wanted] == direct
    again = Signal(r, tmp_path / "whole")  # killed in step 4, resumed from the checkpoint of step 2
    again.restore(3)
    assert again.judge(steps[2]) == wanted[2]


def test_a_group_lost_to_faults_is_never_kept() -> None:
    assert Signal(recipe()).judge([("a", [1.0, 0.0]), ("b", [])]) == {"a": True, "b": False}

"""`judge.simulate`: whole runs of useless branches, and how often an effect is found."""

from __future__ import annotations

import numpy as np
import pytest

from evotrainer.judge import JudgeConfig
from evotrainer.judge.alpha_spending import share
from evotrainer.judge.planned_seeds import detectable
from evotrainer.judge.simulate import Population, false_promotions, power, run_looks
from tests.judge.scored_trials import SMALL


def test_a_run_of_useless_branches_is_rarely_fooled() -> None:
    rate = false_promotions(Population(tasks=100), looks=6, runs=80, seed=4)
    # 5% allowed: 80 runs exceed 10 hits with probability below 0.2% if the level holds
    assert rate.hits <= 10


def test_ten_points_are_found_with_three_seeds() -> None:
    found = power(Population(), 0.10, runs=40, seed=4)
    assert found.value >= 0.8
    useless = power(Population(), 0.0, runs=40, seed=4)
    assert useless.value <= 0.1


def test_whole_runs_with_top_ups_keep_their_level() -> None:
    config = JudgeConfig(worthwhile=0.05, max_seeds=8)
    rate = false_promotions(SMALL, looks=6, runs=200, config=config)
    assert rate.value <= config.alpha, "every further look spends"
    more = [
        sum(
            v.alpha or 0
            for v in run_looks(SMALL, [0.0] * 6, np.random.default_rng(i), config=config)
            if v.kind != "promote"
        )
        for i in range(20)
    ]
    assert max(more) < config.alpha


def test_a_worthwhile_effect_is_given_seeds_until_it_is_excluded() -> None:
    p = Population(tasks=150)
    patient, hasty = JudgeConfig(worthwhile=0.05, max_seeds=8), JudgeConfig(max_seeds=6)
    assert power(p, 0.05, runs=40, config=patient).value > power(p, 0.05, runs=40, config=hasty).value + 0.05


@pytest.mark.slow
def test_the_detectable_gain_is_found_four_times_in_five_by_the_judge_itself() -> None:
    for tasks, seeds, seed_sd in ((60, 3, 0.0), (60, 5, 0.02), (200, 8, 0.02)):
        gain = detectable(tasks, 4, seeds, JudgeConfig().alpha * share(1), seed_sd)
        p = Population(tasks=tasks, seed_sd=seed_sd)
        once = {"seeds": seeds, "noise_seeds": seeds, "top_up": False, "per_round": 1, "planned": False}
        found, half = power(p, gain, runs=200, **once), power(p, gain / 2, runs=200, **once)
        assert 0.7 <= found.value <= 0.9 and half.value < 0.5, (tasks, seeds, seed_sd)

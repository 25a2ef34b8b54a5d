"""The gate's own error: components from trials, real A/A splits, power, and what byte-identical branches get."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.errors import ConfigError
from evotrainer.judge import InterimAnalysis, JudgeConfig, judge, measure_noise, scores_of
from evotrainer.judge.calibrate import Costs, GateShape, calibrate
from evotrainer.judge.components import measured, seed_correlation
from evotrainer.judge.real_comparisons import RealComparisons, real_comparisons
from evotrainer.judge.simulate import Population, false_promotions, mean_score, power, run_looks, trial
from evotrainer.records.events import TrialFinished

SMALL = Population(tasks=80, attempts=2)


def repeats(n: int, population: Population = SMALL, name: str = "b0", seed: int = 0) -> list[TrialFinished]:
    rng = np.random.default_rng(seed)
    return population.trials(name, population.difficulties(rng), range(1, n + 1), rng)


def nothing() -> RealComparisons:
    return real_comparisons({}, JudgeConfig())


def test_components_come_back_from_simulated_trials() -> None:
    p = Population(tasks=400, attempts=8, seed_sd=0.05)
    m = measured(repeats(60, p), None, [0.0, 0.0009, 0.0016])
    assert m.seed_sd == pytest.approx(0.05, rel=0.35)
    assert m.seed_sd < m.trial_sd and m.seed_sd < m.seed_sd_high
    assert (m.tasks, m.attempts, m.df) == (400, 8, 59)
    assert m.task_branch_sd == pytest.approx(0.035, abs=0.001) and m.task_branch_measured
    assert all(0 < x < 1 for x in m.difficulties)
    assert not measured(repeats(3), None, []).task_branch_measured
    with pytest.raises(ConfigError, match=r"1 scored trial\(s\) of the starting recipe"):
        measured(repeats(1), None, [])


def test_real_splits_are_disjoint_and_rarely_promoted() -> None:
    found = real_comparisons({"b0": repeats(6), "b1": repeats(5, name="b1"), "b2": repeats(3)}, JudgeConfig())
    # 6 of 3 against 3: 10 splits; 5 of 2 against 2: 15; both directions each
    assert found.comparisons == 2 * (10 + 15) and found.independent == 2
    assert found.left_out == {"b2": 3} and found.groups == {"b0": 6, "b1": 5}
    assert found.promoted.hits == 0 and found.promoted_plain.runs == 50
    drawn = real_comparisons({"b0": repeats(12)}, JudgeConfig(), most=20)
    assert drawn.comparisons == 40 and drawn == real_comparisons({"b0": repeats(12)}, JudgeConfig(), most=20)
    assert nothing().comparisons == 0


def test_two_recipes_called_one_are_found_out() -> None:
    mixed = repeats(3) + [
        trial("b0", t.seed + 3, {k: min(1.0, v + 0.4) for k, v in t.scores[0].per_task.items()}, 2) for t in repeats(3)
    ]
    assert real_comparisons({"b0": mixed}, JudgeConfig()).promoted_plain.hits > 0


def test_a_calibration_says_what_misses_the_targets_and_what_would_do() -> None:
    parts = measured(repeats(6), None, [])
    shape = GateShape(rounds=1, branches=2, seeds=3, config=JudgeConfig(max_seeds=4, worthwhile=0.08))
    c = calibrate(parts, shape, nothing(), runs=20, costs=Costs(training=10.0, gate_evaluation=2.0))
    effects = [r.effect for r in c.power]
    assert 0.08 in effects and effects == sorted(effects)
    assert c.power[-1].first.value >= c.power[0].first.value
    assert c.options[0].max_seeds == 4 and c.options[0].cpu_s == pytest.approx(10 * c.options[0].trainings)
    doubled = next(o for o in c.options if o.attempts == 4)
    assert doubled.cpu_s == pytest.approx(12 * doubled.trainings)
    assert any("fewer than 20" in p for p in c.problems)
    if c.recommended is not None:
        assert c.options[c.recommended].reaches
    assert Costs(training=10.0).run(3, 2.0) is None


def test_seeds_that_move_together_correlate() -> None:
    rng = np.random.default_rng(1)
    base = {s: 0.5 + 0.1 * rng.standard_normal() for s in range(8)}
    side = [[trial(n, s, {f"t{i}": p for i in range(4)}, 1) for s, p in base.items()] for n in ("b0", "b1")]
    assert seed_correlation([(side[1], side[0])]) == pytest.approx(1.0)
    assert seed_correlation([(side[1][:3], side[0][:3])]) is None


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


@settings(max_examples=60, deadline=None)
@given(
    scores=st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=6, max_size=6), min_size=3, max_size=6),
    alpha=st.floats(0.0001, 0.49),
    config=st.builds(
        JudgeConfig,
        min_effect=st.sampled_from([0.0, 0.01, 0.3]),
        min_seeds=st.integers(2, 3),
        worthwhile=st.sampled_from([None, 0.01, 0.5]),
        max_seeds=st.integers(3, 9),
    ),
    same=st.sampled_from(["scores", "weights"]),
    noise=st.booleans(),
)
def test_byte_identical_branches_are_never_promoted_and_never_called_harmful(
    scores: list[list[float]], alpha: float, config: JudgeConfig, same: str, noise: bool
) -> None:
    control = [
        trial("b0", s, {f"t{i}": x for i, x in enumerate(row)}, 2, policy_sha256=f"w{s}")
        for s, row in enumerate(scores, 1)
    ]
    # equal weights with other attempts drawn in evaluation, or equal scores
    branch = [
        t.model_copy(update={"branch": "b1"})
        if same == "scores"
        else trial("b1", t.seed, {f"t{i}": 1.0 for i in range(6)}, 2, policy_sha256=t.policy_sha256)
        for t in control
    ]
    pool = measure_noise("b0", scores_of(control, "gate")) if noise else None
    v = judge("b1", "b0", branch, control, pool, InterimAnalysis(number=1, alpha=alpha), config)
    assert v.kind == "reject" and "harmful:" not in v.reason and "neither better nor harmful" in v.reason
    assert v.effect is not None and (v.effect.mean, v.effect.low, v.effect.high) == (0, 0, 0)
    assert (v.look, v.alpha) == (0, None), "it tested nothing and spent nothing"
    assert mean_score(control) >= 0

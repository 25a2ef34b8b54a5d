"""`judge.stats`: what the statistics behind a verdict estimate, and that they err on the careful side."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.errors import ConfigError
from evotrainer.judge.simulate import Population
from evotrainer.judge.stats import (
    Scores,
    components,
    effect,
    measure_noise,
    p_value,
    scores_of,
)
from tests.judge.scored_trials import repeats

cells = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


@st.composite
def score_tables(draw: st.DrawFn) -> tuple[Scores, Scores]:
    """Two sets of trials on the same tasks, two to four seeds each."""
    n_tasks = draw(st.integers(2, 8))

    def side() -> Scores:
        seeds = draw(st.integers(2, 4))
        return {s: {f"t{i}": draw(cells) for i in range(n_tasks)} for s in range(1, seeds + 1)}

    return side(), side()


@given(score_tables())
@settings(max_examples=60, deadline=None)
def test_swapping_branch_and_control_only_changes_the_sign(pair: tuple[Scores, Scores]) -> None:
    ab, ba = effect(*pair), effect(pair[1], pair[0])
    assert ab.mean == pytest.approx(-ba.mean, abs=1e-12)
    assert (ab.low, ab.high) == pytest.approx((-ba.high, -ba.low), abs=1e-9)
    assert ab.low <= ab.mean <= ab.high
    assert ab.se == pytest.approx(ba.se)
    assert ab.noise_floor == pytest.approx(ba.noise_floor)


@given(score_tables(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_and_names_of_seeds_and_tasks_do_not_matter(pair, rnd) -> None:  # type: ignore[no-untyped-def]
    branch, control = pair
    tasks = list(branch[1])
    rnd.shuffle(tasks)
    renamed = {s + 40: {t: branch[s][t] for t in tasks} for s in sorted(branch, reverse=True)}
    a, b = effect(branch, control), effect(renamed, control)
    assert (a.mean, a.low, a.high) == pytest.approx((b.mean, b.low, b.high), abs=1e-9)


@given(score_tables(), st.sampled_from([0.5, 0.8, 0.99]))
@settings(max_examples=40, deadline=None)
def test_more_confidence_never_narrows_the_interval(pair: tuple[Scores, Scores], confidence: float) -> None:
    narrow, wide = effect(*pair, confidence=confidence), effect(*pair, confidence=confidence + 0.005)
    assert wide.low <= narrow.low + 1e-12
    assert wide.high >= narrow.high - 1e-12


def test_planted_components_are_recovered() -> None:
    rng = np.random.default_rng(3)
    pop = Population(tasks=400, seed_sd=0.03, task_branch_sd=0.0)
    p_T = pop.difficulties(rng)
    trials = pop.trials("b0", p_T, range(1, 81), rng)
    noise = measure_noise("b0", scores_of(trials, "gate"))
    sampling = float((p_T * (1 - p_T)).mean()) / pop.attempts
    assert noise.seed_sd == pytest.approx((0.03**2 + sampling / 400) ** 0.5, rel=0.25)
    # seeds move tasks by different amounts, so the residual is a little more than the attempts' own variance
    assert noise.numbers["v_residual"] == pytest.approx(sampling, rel=0.15)


def test_a_branch_measured_twice_counts_once_in_the_noise() -> None:
    rng = np.random.default_rng(0)
    pop = Population(tasks=50)
    p_T = pop.difficulties(rng)
    b0, b1 = (scores_of(pop.trials(b, p_T, range(1, 4), rng), "gate") for b in ("b0", "b1"))
    first = measure_noise("b0", b0)
    both = measure_noise("b1", b1, earlier=first)
    assert (first.numbers["df"], both.numbers["df"]) == (2, 4)
    assert measure_noise("b1", b1, earlier=both) == both
    named = components(b1, b0, both, names=("b1", "b0"))
    assert named.df_trial == 4
    assert named.v_trial == pytest.approx(components(b1, b0).v_trial)


def test_a_pool_of_quiet_branches_does_not_speak_for_a_wild_one() -> None:
    rng = np.random.default_rng(5)
    pop = Population(tasks=200)
    p_T = pop.difficulties(rng)
    control = scores_of(pop.trials("b0", p_T, range(1, 4), rng), "gate")
    noise = measure_noise("b0", control)
    for i in range(1, 9):
        quiet = scores_of(pop.trials(f"b{i}", p_T, range(1, 4), rng, seed_sd=0.005), "gate")
        noise = measure_noise(f"b{i}", quiet, earlier=noise)
    wild = {s: {t: min(1.0, v + 0.1 * (s - 2)) for t, v in control[s].items()} for s in control}
    parts = components(wild, control, noise, names=("b9", "b0"))
    assert parts.own_only
    assert parts.df_trial == 4


def test_trials_that_agree_by_luck_keep_at_least_the_sampling_error() -> None:
    rng = np.random.default_rng(1)
    y = rng.permuted(np.repeat([0.0, 0.5, 1.0], 20))
    same_mean = {s: {f"t{i}": float(v) for i, v in enumerate(np.roll(y, s))} for s in (1, 2, 3)}
    e = effect(same_mean, same_mean)
    assert e.se > 0
    assert e.noise_floor > 0


def test_effect_without_any_repetition_is_refused_with_a_remedy() -> None:
    one = {1: {"a": 1.0, "b": 0.0}}
    with pytest.raises(ConfigError, match="run more seeds"):
        effect(one, one)
    with pytest.raises(ConfigError, match="share no scored task"):
        effect({1: {"a": 1.0}, 2: {"a": 1.0}}, {1: {"z": 1.0}, 2: {"z": 0.0}})
    with pytest.raises(ConfigError, match="at least 2"):
        measure_noise("b0", one)


def test_the_p_value_agrees_with_the_lower_bound() -> None:
    rng = np.random.default_rng(2)
    pop = Population(tasks=100)
    p_T = pop.difficulties(rng)
    control = scores_of(pop.trials("b0", p_T, range(1, 4), rng), "gate")
    for planted in (-0.05, 0.0, 0.05, 0.15):
        branch = scores_of(pop.trials("b1", p_T, range(1, 4), rng, effect=planted), "gate")
        e = effect(branch, control, confidence=0.9)
        assert (e.low > 0) == (p_value(e) < 0.05)


def test_a_gain_that_rests_on_few_tasks_is_less_certain_than_an_even_one() -> None:
    """Tasks are a random effect: the claim is about new tasks too."""
    rng = np.random.default_rng(9)

    def draw(gain: dict[int, float]) -> Scores:
        return {s: {f"t{i}": float(rng.choice([0.0, 0.25])) + gain.get(i, 0.0) for i in range(200)} for s in (1, 2, 3)}

    base, even = draw({}), draw(dict.fromkeys(range(200), 0.1))
    uneven = draw(dict.fromkeys(range(40), 0.5))
    a, b = effect(even, base), effect(uneven, base)
    assert a.mean == pytest.approx(b.mean, abs=0.02)
    assert b.se > 1.3 * a.se
    assert components(even, base).v_task < 0.005
    assert components(uneven, base).v_task == pytest.approx(0.25 * 0.2 * 0.8, rel=0.25)


def test_more_control_seeds_sharpen_the_comparison() -> None:
    rng = np.random.default_rng(4)
    pop = Population(tasks=100)
    p_T = pop.difficulties(rng)
    branch = scores_of(pop.trials("b1", p_T, range(1, 4), rng), "gate")
    control = scores_of(pop.trials("b0", p_T, range(1, 9), rng), "gate")
    few = {s: control[s] for s in (1, 2, 3)}
    noise = measure_noise("b0", control)
    assert effect(branch, control, noise, names=("b1", "b0")).df > effect(branch, few).df
    assert components(branch, control, noise, names=("b1", "b0")).seeds_control == 8


def test_a_trial_that_failed_has_no_score() -> None:
    done, failed = repeats(2)
    assert scores_of([done, failed.model_copy(update={"status": "failed"})], "gate").keys() == {done.seed}

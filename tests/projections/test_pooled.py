"""`projections.pooled`: one linear model over all trainings."""

from __future__ import annotations

import numpy as np
import pytest

from evotrainer.projections.pooled import (
    NOISE_DF,
    NOISE_SD,
    Prior,
    TrainingScore,
    fit,
    group_of,
    level,
    levels,
    noise_of,
)
from evotrainer.records.recipe import Recipe

START = Recipe(rewards={"visible": 1.0})
CHANGES = {"lr": 1e-4, "kl_beta": 0.1, "group_size": 16, "temperature": 0.8, "weight_decay": 0.1}
TRUE = {"lr": 0.05, "kl_beta": -0.04, "group_size": 0.02, "temperature": 0.0, "weight_decay": 0.01}


def world(n: int, sd: float, seed: int = 0) -> list[TrainingScore]:
    """Trainings of random bundles of up to three changes whose effects add up."""
    rng = np.random.default_rng(seed)
    out = [TrainingScore(START, 0.5 + sd * rng.standard_normal()) for _ in range(2)]
    for _ in range(n):
        chosen = rng.choice(sorted(CHANGES), size=rng.integers(1, 4), replace=False)
        recipe = START.with_changes({f: CHANGES[f] for f in chosen})
        out.append(TrainingScore(recipe, 0.5 + sum(TRUE[f] for f in chosen) + sd * rng.standard_normal()))
    return out


def test_levels_are_the_values_that_differ_from_the_start() -> None:
    assert levels(START, START) == frozenset()
    child = START.with_changes({"lr": 1e-4, "clip": {"low": 0.1, "high": 0.2}})
    assert levels(START, child) == {level("lr", 1e-4), level("clip", {"high": 0.2, "low": 0.1})}


def test_every_training_informs_every_factor() -> None:
    model = fit(START, world(60, 0.025), {})
    for factor, effect in TRUE.items():
        mean, sd = model.gain([level(factor, CHANGES[factor])])
        assert abs(mean - effect) < 3 * sd and sd < 0.012, factor
    assert [e.factor for e in model.effects()][:1] == ["lr"] and model.trainings == 62
    assert sum(e.trainings for e in model.effects()) > 100


def test_its_intervals_hold_what_they_say() -> None:
    inside = total = 0
    for seed in range(40):
        model = fit(START, world(20, 0.025, seed), {})
        for factor, effect in TRUE.items():
            mean, sd = model.gain([level(factor, CHANGES[factor])])
            inside += abs(mean - effect) < 1.96 * sd
            total += 1
    assert 0.9 <= inside / total <= 1.0


def test_without_observations_it_is_the_prior() -> None:
    lr = level("lr", 1e-4)
    model = fit(START, [], {lr: Prior(0.02, 0.01)}, [lr])
    assert model.gain([lr]) == pytest.approx((0.02, 0.01)) and model.gain([level("lr", 9.0)]) == (0.0, 0.0)
    assert model.effects() == ()


def test_one_observation_is_bayes_rule_by_hand() -> None:
    lr = level("lr", 1e-4)
    seen = [TrainingScore(START, 0.5)] * 400 + [TrainingScore(START.with_factor("lr", 1e-4), 0.56)]
    model = fit(START, seen, {lr: Prior(0.0, 0.03)})
    noise = model.noise_sd
    weight = 0.03**2 / (0.03**2 + noise**2 * (1 + 1 / 400))
    assert model.gain([lr])[0] == pytest.approx(0.06 * weight, rel=0.02)
    assert model.gain([lr])[1] == pytest.approx((0.03**2 * (1 - weight)) ** 0.5, rel=0.02)


def test_pairs_take_up_what_two_changes_do_together() -> None:
    a, b = level("lr", 1e-4), level("kl_beta", 0.1)
    both = START.with_changes({"lr": 1e-4, "kl_beta": 0.1})
    seen = [TrainingScore(START, 0.5)] * 4
    seen += [
        TrainingScore(START.with_factor("lr", 1e-4), 0.5),
        TrainingScore(START.with_factor("kl_beta", 0.1), 0.5),
    ] * 3
    seen += [TrainingScore(both, 0.6)] * 4
    model = fit(START, seen, {})
    together, alone = model.gain([a, b])[0], model.gain([a])[0] + model.gain([b])[0]
    assert together > alone + 0.01 and together > 0.04


def test_noise_is_pooled_within_recipes_and_begins_at_the_prior() -> None:
    assert noise_of([]) == pytest.approx(NOISE_SD)
    assert noise_of([[0.5], [0.6]]) == pytest.approx(NOISE_SD)
    want = ((NOISE_SD**2 * NOISE_DF + 0.02) / (NOISE_DF + 1)) ** 0.5
    assert noise_of([[0.4, 0.6]]) == pytest.approx(want)


def test_values_of_a_factor_on_one_side_tell_of_one_another() -> None:
    up, more, down, other = (
        level("lr", 2 * START.lr),
        level("lr", 3 * START.lr),
        level("lr", START.lr / 2),
        level("kl_beta", 1),
    )
    seen = [TrainingScore(START, 0.5)] * 4 + [TrainingScore(START.with_factor("lr", 2 * START.lr), 0.6)] * 4
    model = fit(START, seen, {}, [more, down, other])
    tried, like = model.gain([up])[0], model.gain([more])[0]
    assert tried > 0.05 and 0.4 * tried < like < tried
    assert model.gain([down])[0] == model.gain([other])[0] == 0.0


def test_what_values_share_is_part_of_the_prior_not_added_to_it() -> None:
    up, more = level("lr", 2 * START.lr), level("lr", 3 * START.lr)
    model = fit(START, [], {up: Prior(0.0, 0.02), more: Prior(0.01, 0.04)}, [up, more])
    assert model.gain([up])[1] < 0.03 and model.gain([more])[0] == pytest.approx(0.01)
    lone = fit(START, [], {up: Prior(0.0, 0.02)}, [up])
    assert lone.gain([up])[1] == pytest.approx(0.02)


def test_reward_compositions_are_alike_where_they_make_the_same_move() -> None:
    some, much, other = (
        {"visible": 1.0, "robust": 0.5},
        {"visible": 1.0, "robust": 1.0},
        {"visible": 1.0, "brief": 0.5},
    )
    groups = [group_of(START, level("rewards", r)) for r in (some, much, other)]
    assert groups[0] == groups[1] != groups[2]


def test_draws_have_the_mean_and_spread_of_the_posterior() -> None:
    model = fit(START, world(12, 0.025), {level("lr", 1e-4): Prior(0.01, 0.02)})
    drawn = np.array([model.draw(np.random.default_rng(i)) for i in range(4000)])
    assert np.allclose(drawn.mean(axis=0), model.mean, atol=5 * 0.03 / 4000**0.5)
    assert np.allclose(np.cov(drawn.T), model.cov, atol=1e-4)


def test_what_dearer_trainings_gain_is_none_of_the_changes() -> None:
    """A change that trains half as long again and gains what that gains is worth nothing at equal compute."""
    longer, dear = START.with_changes({"steps": 2 * START.steps}), START.with_changes({"group_size": 16})
    cheap = START.with_changes({"lr": 1e-4})
    seen = [TrainingScore(START, 0.5)] * 4 + [TrainingScore(cheap, 0.55)] * 4
    told = [*seen, *[TrainingScore(longer, 0.58, 0.6)] * 4, *[TrainingScore(dear, 0.56, 0.4)] * 4]
    untold = [*seen, *[TrainingScore(longer, 0.58)] * 4, *[TrainingScore(dear, 0.56)] * 4]
    gain = {name: fit(START, x, {}).gain([level("group_size", 16)])[0] for name, x in (("told", told), ("not", untold))}
    assert gain["not"] > 0.04 > 0.03 > gain["told"]
    same = [fit(START, x, {}).gain([level("lr", 1e-4)])[0] for x in (told, untold)]
    assert same[0] == pytest.approx(same[1], abs=0.01), "what costs as much as the start keeps its effect"


def test_without_measured_compute_nothing_is_added_to_the_model() -> None:
    x = world(12, 0.02)
    assert len(fit(START, x, {}).mean) + 1 == len(fit(START, [*x, TrainingScore(START, 0.5, 0.2)], {}).mean)


def test_the_bound_on_the_noise_falls_with_what_is_known_of_it() -> None:
    few, many = ([TrainingScore(START, 0.5 + 0.03 * (-1) ** i) for i in range(n)] for n in (3, 24))
    bounds = [fit(START, x, {}).noise_at_most(0.8) / fit(START, x, {}).noise_sd for x in (few, many)]
    assert bounds[0] > 1.4 > 1.2 > bounds[1] > 1

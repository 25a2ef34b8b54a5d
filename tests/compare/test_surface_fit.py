"""`bench.claim`: surfaces fitted to trainings, and invented ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bench.claim.fitted import Landscape
from bench.claim.surface import Scored, fit, flat
from bench.claim.worlds import best, levels_of, pairs_of, world
from bench.compare.agents.control import MAX_COST, Space
from bench.compare.agents.simple import random_recipe

from evotrainer.agents.pool import candidate_pool, situation
from evotrainer.errors import ConfigError
from tests.agents.briefings import START, FakeTools, briefing
from tests.compare.worlds import EFFECTS


def space() -> Space:
    b, tools = briefing(START), FakeTools()
    return Space(START, candidate_pool(b, tools, situation(b, tools, 0), MAX_COST))


def trainings(n: int, noise: float, pair: float = 0.0) -> list[Scored]:
    rng, on_offer = np.random.default_rng(1), space()
    out = []
    for _ in range(n):
        made = random_recipe(on_offer, rng)
        recipe = START.with_changes({f: c.variant.value for f, c in made.items()})
        now = recipe.factors()
        score = 0.5 + sum(e for (f, v), e in EFFECTS.items() if now.get(f) == v)
        score += pair * (now["loss"] == "dr_grpo" and now["temperature"] == 1.3)
        changes = {f: v for f, v in now.items() if START.factors().get(f) != v}
        out.append(Scored(changes, float(score + rng.normal(0, noise))))
    return out


@pytest.mark.slow
def test_a_fit_finds_what_was_planted_and_states_its_error() -> None:
    made = fit(START, trainings(240, 0.02), "planted")
    found = {(e.factor, e.value): e.effect for e in made.effects if isinstance(e.value, str | float | int)}
    for (factor, value), effect in EFFECTS.items():
        assert found[factor, value] == pytest.approx(effect, abs=0.02), factor
    idle = [e for x, e in found.items() if x not in EFFECTS]
    assert max(map(abs, idle)) < 0.035 and made.base == pytest.approx(0.5, abs=0.01)
    assert 0.02 < made.fit["loo_rmse"] < 0.03 < made.fit["flat_rmse"], "an error of prediction holds the noise as well"
    assert made.fit["trainings"] == 240 and made.seed_sd == pytest.approx(0.02, abs=0.01)


@pytest.mark.slow
def test_pairs_are_fitted_where_they_help() -> None:
    both = {"loss": "dr_grpo", "temperature": 1.3}
    plain = trainings(200, 0.01)
    bent = [Scored(both, 0.25 + 0.002 * k) for k in range(8)]  # additive: 0.55
    made = fit(START, [*plain, *bent], "bent")
    assert made.pairs
    assert made.gain(START.with_changes(both)) == pytest.approx(-0.25, abs=0.12)
    assert not fit(START, [s for s in plain if len(s.changes) == 1], "single").pairs


@pytest.mark.slow
def test_noise_without_effects_is_not_fitted() -> None:
    rng = np.random.default_rng(3)
    level = [Scored(s.changes, float(0.5 + rng.normal(0, 0.03))) for s in trainings(120, 0.0)]
    made = fit(START, level, "flat")
    assert made.fit["effect_sd"] == 0.01, "the smallest effects explain it best"
    assert made.fit["loo_rmse"] > 0.9 * made.fit["flat_rmse"]


def test_too_few_recipes_are_refused() -> None:
    with pytest.raises(ConfigError, match="1 recipes were trained, a surface needs 8; give more"):
        fit(START, [Scored({}, 0.5)] * 20, "few")


def test_an_invented_world_is_of_its_class() -> None:
    on_offer = space()
    made: dict[str, Any] = {
        kind: world(kind, on_offer, np.random.default_rng(5), kind) for kind in ("additive", "cliffs", "nothing")
    }
    assert not made["additive"].pairs and made["additive"].best.gain > 0.05
    assert max(e.effect for e in made["nothing"].effects) <= 0 and made["nothing"].best.gain == 0
    assert made["cliffs"].pairs and all(p.effect == -0.3 for p in made["cliffs"].pairs)
    pairs = pairs_of("pairwise", levels_of(on_offer), dict.fromkeys(levels_of(on_offer), 0.0), np.random.default_rng(0))
    assert 0.01 < float(np.std([p.effect for p in pairs])) < 0.03
    said = made["additive"]
    top = said.score(on_offer.champion.with_changes(said.best.changes)) - said.score(on_offer.champion)
    assert top == pytest.approx(said.best.gain, abs=1e-4)
    assert best(said, on_offer, np.random.default_rng(9)).gain == pytest.approx(said.best.gain, abs=0.02)


def test_a_landscape_tells_what_lies_between_trainings() -> None:
    """The rate is best in the middle; the batch makes no difference."""
    rng = np.random.default_rng(2)
    seen = [
        Scored({"lr": lr, "prompts_per_step": size}, float(0.6 - 0.05 * np.log10(lr / 1e-4) ** 2 + rng.normal(0, 0.01)))
        for lr in (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
        for size in (8, 16, 32, 64)
        for _ in range(2)
    ]
    land = Landscape(START, seen)
    assert land.error < 0.015 and land.noise == pytest.approx(0.01, abs=0.003)

    def at(lr: float) -> float:
        return land(START.with_changes({"lr": lr, "prompts_per_step": 24}))

    for lr in (1.7e-5, 6e-5, 2e-4, 6e-4):  # trained at none of them
        assert at(lr) == pytest.approx(0.6 - 0.05 * np.log10(lr / 1e-4) ** 2, abs=0.012), lr
    assert at(1e-3) == at(1e-1), "beyond the trainings nothing is made up"


def test_the_error_of_a_landscape_of_nothing_is_that_of_the_mean() -> None:
    rng = np.random.default_rng(3)
    land = Landscape(START, [Scored(s.changes, float(0.5 + rng.normal(0, 0.03))) for s in trainings(80, 0.0)])
    assert 0.9 < land.error / flat(land.y_N, land.groups) < 1.01


def test_phases_of_more_steps_than_the_start_may_stand_in_a_surface() -> None:
    from bench.compare.surface import Main, Surface, check_values

    parts = [
        {"kind": "references", "steps": 200, "lr": None, "batch": 32},
        {"kind": "rl", "steps": None, "lr": None, "batch": None},
    ]
    check_values(Surface(name="x", base=0.5, effects=(Main(factor="phases", value=parts, effect=0.05),)))
    with pytest.raises(ConfigError, match="phases"):
        check_values(Surface(name="x", base=0.5, effects=(Main(factor="phases", value=[{"kind": "no"}], effect=0.0),)))

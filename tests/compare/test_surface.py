"""Response surfaces: what a recipe scores, drawn the same whoever asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.compare.surface import Main, Pair, Surface, Value, load_surfaces

from evotrainer.errors import ConfigError
from evotrainer.records.recipe import Recipe

LR, GROUP = Value(factor="lr", value=1e-3), Value(factor="group_size", value=4)
SURFACE = Surface(
    name="one",
    base=0.5,
    effects=(Main(factor="lr", value=1e-3, effect=0.1), Main(factor="group_size", value=4, effect=0.05)),
    pairs=(Pair(a=LR, b=GROUP, effect=-0.12),),
)
START, ONE = Recipe(), Recipe(lr=1e-3)
BOTH = Recipe(lr=1e-3, group_size=4)


def test_effects_add_up_and_pairs_on_top() -> None:
    assert [round(SURFACE.score(r), 6) for r in (START, ONE, Recipe(group_size=4), BOTH)] == [0.5, 0.6, 0.55, 0.53]
    assert SURFACE.score(Recipe(lr=2e-3)) == 0.5, "another value has no effect"


def test_log_odds_keep_many_gains_below_one() -> None:
    bent = SURFACE.model_copy(update={"link": "logit", "pairs": ()})
    assert bent.score(START) == pytest.approx(0.5)
    assert bent.score(ONE) == pytest.approx(1 / (1 + 2.718281828 ** (-0.4)))
    big = Surface(name="big", base=0.5, link="logit", effects=(Main(factor="lr", value=1e-3, effect=2.0),))
    assert big.score(ONE) < 1


def test_a_reading_is_a_function_of_recipe_seed_and_split() -> None:
    once = SURFACE.reading(ONE, 7, "cert")
    assert SURFACE.reading(ONE, 7, "cert") == once
    others = {SURFACE.reading(*x) for x in ((ONE, 8, "cert"), (ONE, 7, "gate"), (START, 7, "cert"))}
    assert once not in others and len(others) == 3
    assert SURFACE.model_copy(update={"name": "two"}).reading(ONE, 7, "cert") != once


def test_noise_is_what_the_file_says() -> None:
    quiet = SURFACE.model_copy(update={"seed_sd": 0.0, "tasks": 2000, "attempts": 16})
    loud = SURFACE.model_copy(update={"seed_sd": 0.05, "tasks": 2000, "attempts": 16})

    def sd(s: Surface) -> float:
        x = [s.reading(ONE, k, "search") for k in range(60)]
        mean = sum(x) / len(x)
        assert mean == pytest.approx(0.6, abs=0.025)
        return float((sum((v - mean) ** 2 for v in x) / (len(x) - 1)) ** 0.5)

    assert sd(quiet) < 0.005 and 0.035 < sd(loud) < 0.065


def write(tmp_path: Path, value: object) -> Path:
    p = tmp_path / "surface.json"
    p.write_text(value if isinstance(value, str) else json.dumps(value))
    return p


def test_a_file_holds_one_surface_or_several(tmp_path: Path) -> None:
    one = SURFACE.model_dump(mode="json")
    assert load_surfaces(write(tmp_path, one)) == [SURFACE]
    assert [s.name for s in load_surfaces(write(tmp_path, [one, {**one, "name": "two"}]))] == ["one", "two"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{", "is no JSON"),
        ([], "holds no surface"),
        ({"name": "x"}, "base: is missing; give it a value"),
        ({"name": "x", "base": 0.5, "efects": []}, "did you mean effects"),
        ({"name": "x", "base": 0.5, "effects": [{"factor": "lrr", "value": 1, "effect": 0}]}, "unknown factor 'lrr'"),
        (
            {"name": "x", "base": 0.5, "effects": [{"factor": "clip", "value": {"low": 0.1}, "effect": 0}]},
            "a recipe has it as",
        ),
    ],
)
def test_a_file_that_is_none_is_refused_in_a_line(value: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as e:
        load_surfaces(write(tmp_path, value))
    assert said in str(e.value) and "\n" not in str(e.value)
    with pytest.raises(ConfigError, match="cannot read surface"):
        load_surfaces(tmp_path / "nothing.json")

"""Recipes: one factor at a time, computed from the recipes; lint; hash; errors in plain words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.errors import ConfigError, SingleFactorError
from evotrainer.factors.lint import lint
from evotrainer.records.factor_aliases import NAMES, VALUES
from evotrainer.records.one_factor import check_start, single_factor
from evotrainer.records.recipe import (
    Recipe,
    diff,
    format_diff,
    parse_recipe,
    reward_moves,
)
from tests.small_records import RECIPE

CHANGES: dict[str, Any] = {
    "loss": "dapo",
    "clip": {"low": 0.2, "high": 0.28},
    "kl_beta": 0.01,
    "reward_scaling": "none",
    "negative_weight": 0.5,
    "lr": 5e-4,
    "steps": 7,
    "group_size": 4,
    "temperature": 0.7,
    "max_tokens": 50,
    "rewards": {"hidden": 1.0},
    "written": {"short": "def reward(rollout):\n    return 1.0\n"},
    "hooks": {"plain": "def weights(rollouts):\n    return [1.0 for _ in rollouts]\n"},
    "length": {"kind": "overlong", "weight": 0.5},
    "group_filter": {"kind": "zero_variance"},
    "curriculum": {"kind": "pass_rate_band"},
    "averaging": {"kind": "tail_mean"},
    "phases": [{"kind": "own", "steps": 2, "lr": None, "batch": None}, {"kind": "rl"}],
    "credit": {"kind": "turn"},
    "start": {"steps": 3, "rewards": {"hidden": 1.0}},
    "replay": {"weight": 0.1},
    "prompt_noise": 0.5,
    "sft_anchor": 0.1,
    "entropy_bonus": 0.01,
    "is_cap": 2.0,
    "mask_truncated": True,
    "deploy_temperature": 0.5,
    "knobs.history": "scrubbed",
    "knobs.tools": 3,
    "scaffold.system": "Think first.",
}
factor_names = st.lists(st.sampled_from(sorted(CHANGES)), unique=True, max_size=4)


def changed(*names: str) -> Recipe:
    out = RECIPE
    for n in names:
        out = out.with_factor(n, CHANGES[n])
    return out


BELONG = {
    frozenset({"steps", "phases"}): "phase_plan",
    frozenset({"start", "steps"}): "continuation",
    frozenset({"start", "phases"}): "continuation",
    frozenset({"start", "steps", "phases"}): "continuation",
    frozenset({"rewards", "written"}): "written_reward",
}
"""Of `CHANGES`, those that one composite factor sets."""


@settings(max_examples=60, deadline=None)
@given(factor_names)
def test_a_branch_is_accepted_only_with_exactly_one_factor_whatever_was_declared(names: list[str]) -> None:
    child = changed(*names)
    assert set(diff(RECIPE, child)) == set(names)
    if len(names) == 1 or frozenset(names) in BELONG:
        assert single_factor(RECIPE, child) == BELONG.get(frozenset(names), names[0] if names else "")
        return
    with pytest.raises(SingleFactorError) as refused:
        single_factor(RECIPE, child)
    if set(names) == {"steps", "group_size"}:
        assert "batch_shape keeps prompts_per_step x group_size x steps within 5%" in str(refused.value)
        return
    for n in names:
        assert f"{n}: " in str(refused.value), "the message holds the diff"


@settings(max_examples=60, deadline=None)
@given(factor_names, factor_names)
def test_recipes_share_a_hash_exactly_when_they_are_the_same(a: list[str], b: list[str]) -> None:
    assert (changed(*a).hash == changed(*b).hash) == (set(a) == set(b))


def test_the_hash_survives_json_and_key_order() -> None:
    recipe = RECIPE.with_factor("rewards", {"b": 0.5, "a": 1.0})
    again = Recipe.model_validate_json(recipe.model_dump_json())
    assert again.hash == recipe.hash == recipe.with_factor("rewards", {"a": 1.0, "b": 0.5}).hash
    assert len(recipe.hash) == 16
    assert recipe.canonical() == again.canonical()


ON = {"start": "champion", "steps": 5, "phases": []}


def test_a_start_is_the_recipe_that_is_changed_and_counts_from_the_base_on() -> None:
    cooler = RECIPE.with_factor("deploy_temperature", 0.5)
    child = cooler.with_factor("continuation", ON)
    assert child.start == RECIPE and child.deploy_temperature == 0.5, "where a policy is used is not how it was trained"
    again = child.with_factor("continuation", ON)
    assert [r.steps for r in again.chain] == [RECIPE.steps, 5, 5] and again.whole_steps == RECIPE.steps + 10
    n = RECIPE.steps
    assert [again.at(s) for s in (1, n, n + 1, n + 5, n + 6, n + 99)] == [
        *(again.chain[0],) * 2,
        *(again.chain[1],) * 2,
        *(again,) * 2,
    ]
    assert parse_recipe(again.model_dump(mode="json")).hash == again.hash != child.hash
    back = again.with_factor("start", again.value("start"))
    assert back.hash == again.hash and again.with_factor("start", "base") == again.with_factor("start", None)


def test_a_start_is_the_champions_or_one_that_it_went_on_from() -> None:
    """The changes between another one and the champion would be in the policy, and in no verdict."""
    other = {**RECIPE.model_dump(mode="json"), "lr": 9e-4, "temperature": 0.9}
    for factor, value in (("start", other), ("continuation", ON | {"start": other})):
        with pytest.raises(SingleFactorError, match=r"another recipe than the champion's \(lr: .*temperature: "):
            check_start(RECIPE, RECIPE.with_factor(factor, value))
    further = RECIPE.with_factor("continuation", ON)
    for child in (further.with_factor("lr", 5e-4), further.with_factor("start", "base"), RECIPE):
        check_start(further, child)
    cooler = further.with_factor("deploy_temperature", 0.5)
    check_start(cooler, cooler.with_factor("continuation", ON))


def test_readers_see_a_start_by_its_hash() -> None:
    child = RECIPE.with_factor("continuation", ON)
    said = format_diff(diff(RECIPE, child))
    assert said == f'start: null -> "recipe {RECIPE.hash}, {RECIPE.steps} steps"; steps: {RECIPE.steps} -> 5'
    with pytest.raises(ConfigError, match="start: it names no recipe; give the values of the recipe to train first"):
        RECIPE.with_factor("start", "v7")
    starved = [i for i in lint(Recipe(rewards={"x": 1.0}, start=Recipe())) if i.level == "error"]
    assert [(i.factor, i.message.partition(":")[0]) for i in starved] == [("start", "rewards of the earlier recipe")]


def test_a_changed_and_restored_factor_is_no_change() -> None:
    back = RECIPE.with_factor("knobs.tools", 3).with_factor("knobs.tools", None)
    with pytest.raises(SingleFactorError, match="changes no factor"):
        single_factor(RECIPE, back)


@pytest.mark.parametrize(
    ("old", "new", "moves"),
    [
        ({"a": 1}, {"a": 1}, 0),
        ({"a": 1}, {"a": 0.5}, 1),
        ({"a": 1}, {"a": 1, "b": 0.2}, 1),
        ({"a": 1, "b": 0.2}, {"a": 1}, 1),
        ({"a": 1}, {"b": 1}, 1),
        ({"a": 1}, {"a": 1, "b": 0}, 0),
        ({"a": 1}, {"a": 0.5, "b": 0.5}, 2),
        ({"a": 1, "b": 1}, {"c": 1, "d": 1}, 2),
        ({"a": 1}, {"b": 1, "c": 1}, 2),
    ],
)
def test_reward_moves_count_elementary_changes(old: dict[str, float], new: dict[str, float], moves: int) -> None:
    assert reward_moves(old, new) == moves
    if moves > 1:
        with pytest.raises(SingleFactorError, match=f"makes {moves} moves in the reward composition"):
            single_factor(RECIPE.with_factor("rewards", old), RECIPE.with_factor("rewards", new))


@pytest.mark.parametrize(
    ("factor", "value", "complaint"),
    [
        ("learning_rate", 1e-4, r"unknown recipe factor 'learning_rate', did you mean lr\?; one of: .*lr"),
        ("knobs", {"a": 1}, "unknown recipe factor 'knobs'"),
        ("lr", -1, "recipe: lr: .*greater than 0"),
        ("loss", "ppo", "recipe: loss: must be grpo, dapo, .*the nearest is grpo: .*got 'ppo'"),
        ("clip", {"lo": 0.1}, r"recipe: clip\.lo: unknown name"),
        ("curriculum", {"kind": "pass_rate_band", "low": 0.9, "high": 0.1}, "low must be below"),
        ("curriculum", {"kind": "tag_frontier"}, "needs curriculum.tag, the name of a tag"),
        ("averaging", {"kind": "ema", "decay": 1.0}, "less than 1"),
        ("lr", float("nan"), "recipe: lr:"),
        ("temperature", float("inf"), "recipe: temperature:"),
    ],
)
def test_a_bad_factor_or_value_is_refused_in_one_line(factor: str, value: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as refused:
        RECIPE.with_factor(factor, value)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code != 0


def test_a_composite_factor_is_one_factor_and_its_fields_alone_are_theirs() -> None:
    rate = {"lr": 6e-4, "schedule": {"kind": "linear", "warmup": 5}}
    child = RECIPE.with_factor("lr_schedule", rate)
    assert single_factor(RECIPE, child) == "lr_schedule" and child.value("lr_schedule") == rate
    assert child.with_factor("lr_schedule", RECIPE.value("lr_schedule")).hash == RECIPE.hash
    assert single_factor(RECIPE, RECIPE.with_factor("lr", 6e-4)) == "lr"
    with pytest.raises(SingleFactorError, match="changes 3 factors"):
        single_factor(RECIPE, child.with_factor("kl_beta", 0.1))
    with pytest.raises(ConfigError, match="lr_schedule is an object of all of lr, schedule"):
        RECIPE.with_factor("lr_schedule", {"lr": 1e-4})
    with pytest.raises(ConfigError, match="lr_schedule is an object of all of lr, schedule"):
        RECIPE.with_factor("lr_schedule", 3)


@pytest.mark.parametrize(("shape", "fine"), [((16, 4, 30), True), ((5, 13, 30), True), ((16, 8, 30), False)])
def test_a_batch_shape_keeps_the_sampled_rollouts(shape: tuple[int, int, int], fine: bool) -> None:
    parent = Recipe(rewards={"x": 1.0}, prompts_per_step=8, group_size=8, steps=30)
    fields = dict(zip(("prompts_per_step", "group_size", "steps"), shape, strict=True))
    child = parent.with_factor("batch_shape", fields if fine else {**fields, "steps": 29})
    if fine:
        assert single_factor(parent, child) == "batch_shape"
        return
    with pytest.raises(SingleFactorError, match=r"within 5%: 1920 -> 3712 \(\+93%\); choose values of that product"):
        single_factor(parent, child)


def test_recipes_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RECIPE.lr = 1.0  # type: ignore[misc]
    with pytest.raises(ConfigError, match="unknown name"):
        parse_recipe({"rewards": {"a": 1}, "surprise": 1})


@pytest.mark.parametrize(
    ("changes", "level", "factor"),
    [
        ({"rewards": {}}, "error", "rewards"),
        ({"rewards": {"visible": 0.0}}, "error", "rewards"),
        ({"rewards": {"length": -1.0}}, "warning", "rewards"),
        ({"clip": {"low": 0, "high": 0}, "updates_per_step": 2}, "error", "clip"),
        ({"resample": 2}, "error", "resample"),
        ({"credit": {"kind": "turn"}}, "error", "credit"),
        ({"length": {"kind": "overlong"}}, "warning", "length"),
        ({"length": {"kind": "token_penalty", "weight": 0.5}}, "warning", "length"),
        ({"lr": 5e-3}, "warning", "lr"),
        ({"temperature": 0.1}, "warning", "temperature"),
        ({"deploy_temperature": 0.05}, "warning", "deploy_temperature"),
        ({"deploy_temperature": 2.0}, "warning", "deploy_temperature"),
        ({"kl_beta": 1.0}, "warning", "kl_beta"),
        ({"entropy_bonus": -0.01}, "warning", "entropy_bonus"),
        ({"negative_weight": 0.0}, "warning", "negative_weight"),
        ({"averaging": {"kind": "tail_mean", "share": 0.01}}, "warning", "averaging"),
        ({"averaging": {"kind": "ema", "decay": 0.999}}, "warning", "averaging"),
    ],
)
def test_the_lint_names_poison_and_refuses_silent_zero_gradients(
    changes: dict[str, Any], level: str, factor: str
) -> None:
    recipe = RECIPE
    for name, value in changes.items():
        recipe = recipe.with_factor(name, value)
    assert (level, factor) in [(i.level, i.factor) for i in lint(recipe)]


def test_the_lint_has_nothing_to_say_about_a_plain_recipe() -> None:
    assert lint(RECIPE) == []


def test_names_that_others_give_lead_to_a_factor_that_there_is() -> None:
    fields = Recipe.model_fields
    for name, here in NAMES.items():
        field, _, part = here.partition(" ")[0].partition(".")
        assert name not in fields, "our own name is no other's"
        assert field in fields, here
        kind: Any = fields[field].annotation
        assert not part or part in kind.model_fields, here
    for field, value in VALUES:
        assert value not in str(
            fields[field].annotation if field != "kind" else fields["schedule"].annotation.model_fields["kind"]
        )

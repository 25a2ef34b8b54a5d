"""What may be paid, by what a run's first event says of its environment."""

from __future__ import annotations

from typing import Any

import pytest

from evotrainer.errors import ConfigError
from evotrainer.factors.change_rules import ProposedChange, pays, uses, why_not
from evotrainer.factors.payable import on_offer, unpayable, usable, why_unpaid
from evotrainer.records.recipe import Recipe

COMPONENTS = {"visible": "shown tests", "robust": "no crash", "hidden": "sealed tests", "hidden_frac": "share of them"}
TOLD = {"name": "code", "components": COMPONENTS, "outcome": ["hidden", "hidden_frac"]}


def check_paid(recipe: Recipe, told: dict[str, Any]) -> None:
    if why := why_not(ProposedChange(recipe, environment=told), [pays, uses]):
        raise ConfigError(why)


def test_the_outcome_is_not_on_offer_unless_the_task_file_says_so() -> None:
    closed, half = TOLD | {"payable": []}, TOLD | {"payable": ["hidden"]}
    assert unpayable(closed) == ("hidden", "hidden_frac") and unpayable(half) == ("hidden_frac",)
    assert list(on_offer(closed)) == ["visible", "robust"] and list(on_offer(half)) == ["visible", "robust", "hidden"]


def test_a_run_recorded_before_environments_said_it_pays_what_it_paid() -> None:
    old = {"name": "code", "components": COMPONENTS}
    assert unpayable(old) == () and on_offer(old) == COMPONENTS
    assert why_unpaid(Recipe(rewards={"hidden": 1.0}), old) == ""


def test_a_recipe_that_pays_it_is_refused_in_one_line_with_the_remedy() -> None:
    told = TOLD | {"payable": ["hidden"]}
    check_paid(Recipe(rewards={"hidden": 1.0, "visible": 0.5}), told)
    check_paid(Recipe(rewards={"visible": 1.0, "hidden_frac": 0.0}), told)  # no weight: not paid
    for weight in (0.1, -0.1):
        with pytest.raises(ConfigError, match="pays hidden_frac: the outcome of code") as e:
            check_paid(Recipe(rewards={"visible": 1.0, "hidden_frac": weight}), told)
    said = str(e.value)
    assert 'set environment.payable = ["hidden", "hidden_frac"]' in said and "\n" not in said
    assert "reward hidden or robust or visible" in said


TAUGHT = Recipe(rewards={"visible": 1.0}, phases=({"kind": "references", "steps": 3}, {"kind": "rl"}))  # type: ignore[arg-type]


def test_references_are_for_use_where_the_outcome_may_be_paid() -> None:
    offering = TOLD | {"offers": ["references"]}
    assert "references" in usable(offering | {"payable": ["hidden"]})
    assert "references" not in {*usable(offering | {"payable": []}), *usable(TOLD | {"payable": ["hidden"]})}
    check_paid(TAUGHT, offering | {"payable": ["hidden"]})
    with pytest.raises(ConfigError, match="answers to its outcome, which is not for sale") as e:
        check_paid(TAUGHT, offering | {"payable": []})
    assert 'set environment.payable = ["hidden"]' in str(e.value) and "\n" not in str(e.value)


def test_a_part_on_references_is_refused_where_there_are_none() -> None:
    with pytest.raises(ConfigError, match=r"code has no references of its train problems; .*kind = .own.") as e:
        check_paid(TAUGHT, TOLD | {"payable": ["hidden"]})
    assert "\n" not in str(e.value)
    check_paid(TAUGHT.with_factor("phases", [{"kind": "own", "steps": 3}, {"kind": "rl"}]), TOLD)


def test_other_wordings_are_refused_where_there_are_none() -> None:
    noisy = Recipe(rewards={"visible": 1.0}, prompt_noise=0.5)
    check_paid(noisy, TOLD | {"offers": ["wordings"]})
    with pytest.raises(ConfigError, match="prompt_noise: code has no other wordings of its prompts; set it to 0"):
        check_paid(noisy, TOLD)


def test_credit_by_turn_is_refused_where_no_turn_is_rewarded() -> None:
    by_turn = Recipe(rewards={"visible": 1.0}, max_turns=4, credit={"kind": "turn"})  # type: ignore[arg-type]
    check_paid(by_turn, TOLD | {"offers": ["turn_rewards"]})
    with pytest.raises(ConfigError, match="credit: code gives no rewards by turn; set it to episode"):
        check_paid(by_turn, TOLD)


def test_an_anchor_is_refused_where_there_are_no_demonstrations() -> None:
    anchored = Recipe(rewards={"visible": 1.0}, sft_anchor=0.1)
    check_paid(anchored, TOLD | {"demonstrations": True})
    check_paid(anchored, TOLD)  # recorded before environments said it
    for recipe in (anchored, Recipe(rewards={"visible": 1.0}, start=anchored)):
        with pytest.raises(ConfigError, match="sft_anchor: code has no demonstrations to learn from; set it to 0"):
            check_paid(recipe, TOLD | {"demonstrations": False})

"""`projections.state` and `projections.branches`: the lineage read from events, and the single-factor check over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.projections.state import RunState
from evotrainer.records.briefing import BranchRecord
from evotrainer.records.chain import Event
from evotrainer.records.events import Invalidated, Judged, Promoted, RoundOpened, SplitScore
from evotrainer.records.frozen import Frozen
from evotrainer.records.recipe import Recipe
from evotrainer.verify.chain_and_files import refused_branches
from tests.small_records import RECIPE, finished, intended, intervention, opened, verdict

B1 = RECIPE.with_factor("lr", 2e-4)
B2 = B1.with_factor("rewards", {"hidden": 1.0})
B3 = RECIPE.with_factor("kl_beta", 0.1)


def read(*bodies: Frozen) -> RunState:
    return RunState.of([Event(n, f"e{n}", "", "", b, "") for n, b in enumerate(bodies, 1)])


def score(split: str, value: float, step: int = 30, **components: float) -> SplitScore:
    return SplitScore(split=split, step=step, score=value, attempts=2, per_task={"t": value}, components=components)


STORY: tuple[Frozen, ...] = (
    opened("b0", None, RECIPE),
    Promoted(version="v0", branch="b0", previous=None),
    opened("b1", "b0", B1, intervention("lr", RECIPE.lr, 2e-4)),
    opened("b3", "b0", B3, intervention("kl_beta", 0.0, 0.1)),
    intended("b1-s1"),
    intended("b1-s2"),
    intended("b3-s1"),
    finished("b1-s1", scores=(score("search", 0.1, 10), score("search", 0.5, fmt=1.0), score("gate", 0.4))),
    finished("b1-s2", scores=(score("search", 0.7, fmt=0.5),)),
    finished("b3-s1", status="failed", label="crash", error="boom"),
    Judged(round=1, verdict=verdict("b3", "failed")),
    Judged(round=1, verdict=verdict("b1", "inconclusive")),
    Judged(round=1, verdict=verdict("b1", "promote")),
    Promoted(version="v1", branch="b1", previous="v0"),
    opened("b2", "b1", B2, intervention("rewards", {"visible": 1.0}, {"hidden": 1.0})),
    intended("b2-s1"),
    Judged(round=2, verdict=verdict("b2", "promote")),
    Promoted(version="v2", branch="b2", previous="v1"),
)
DISCOVERY = Invalidated(branch="b1", descendants=("b2",), reason="leak confirmed", champion="b0")


def test_the_story_of_a_run_can_be_read_back() -> None:
    tree = read(*STORY)
    assert not tree.problems
    assert not list(refused_branches(tree))
    assert tree.champion == "b2"
    assert [v.version for v in tree.versions] == ["v0", "v1", "v2"]
    assert list(tree.branches) == ["b0", "b1", "b3", "b2"]
    assert (tree.descendants("b0"), tree.descendants("b1")) == (["b1", "b3", "b2"], ["b2"])
    assert tree.ancestors("b2") == ["b1", "b0"]
    assert tree.ancestors("b0") == tree.descendants("b2") == []
    assert [(t.trial, t.status) for t in tree.branches["b1"].trials] == [("b1-s1", "complete"), ("b1-s2", "complete")]
    assert [t.status for t in (*tree.branches["b2"].trials, *tree.branches["b3"].trials)] == ["running", "failed"]
    assert tree.branches["b1"].verdict == verdict("b1", "promote")
    assert tree.invalid == {}


def test_only_events_change_a_state() -> None:
    """Every attribute of a state, set or changed from outside, says how it is done."""
    state = read(*STORY, RoundOpened(round=3, champion="b2", harness="h0", closed={"leak": "off"}))
    for name in [n for n in vars(state) if not n.startswith("_")]:
        with pytest.raises(AttributeError, match=f"{name} follows from a run's events"):
            setattr(state, name, None)
        held = getattr(state, name)
        assert not isinstance(held, list | set), name
        if isinstance(held, Mapping) and held:
            with pytest.raises(TypeError, match="does not support item"):
                held["b9"] = None  # type: ignore[index]
    state.apply(Event(99, "e99", "", "", DISCOVERY, ""))
    assert state.champion == "b0"


def test_agents_see_search_means_of_a_branch_and_no_gate_scores() -> None:
    record = read(*STORY).branches["b1"].record()
    assert isinstance(record, BranchRecord)
    assert record.search == {"fmt": 0.75, "score": 0.6}
    assert record.version == "v1"
    assert read(*STORY).branches["b3"].record().search == {}


def test_invalidity_reaches_descendants_also_those_that_come_later() -> None:
    late = opened("b4", "b2", B2.with_factor("loss", "dapo"), intervention("loss", "grpo", "dapo"))
    tree = read(*STORY, DISCOVERY, late)
    assert tree.champion == "b0"
    assert set(tree.invalid) == {"b1", "b2", "b4"}
    assert tree.invalid["b1"] == "leak confirmed"
    assert tree.invalid["b2"] == "descends from b1: leak confirmed"
    assert not tree.problems


def problems(*bodies: Frozen) -> str:
    tree = read(*bodies)
    return "\n".join((*tree.problems, *refused_branches(tree)))


def test_contradictions_are_reported() -> None:
    assert "finished, and paid for, twice" in problems(*STORY, finished("b1-s1"))
    assert "never intended" in problems(*STORY, finished("b1-s9"))
    assert "intended twice" in problems(*STORY, intended("b1-s1"))
    assert "two branches or seeds" in problems(*STORY, finished("b1-s1").model_copy(update={"seed": 5}))
    assert "never opened" in problems(*STORY, intended("b9-s1"))
    assert "b7 is judged but was never opened" in problems(*STORY, Judged(round=1, verdict=verdict("b7", "reject")))
    assert "grows from b8, which was never opened" in problems(opened("b9", "b8", B1, intervention("lr", 1e-4, 2e-4)))
    assert "opened twice" in problems(*STORY, opened("b1", "b0", B1, intervention("lr", RECIPE.lr, 2e-4)))
    assert "version v1 is given twice" in problems(*STORY, Promoted(version="v1", branch="b1", previous="v0"))
    assert "without a verdict" in problems(*STORY, Promoted(version="v3", branch="b3", previous="v2"))
    assert "promoted although it is invalid" in problems(
        *STORY, DISCOVERY, Promoted(version="v3", branch="b2", previous="v0")
    )
    assert "the invalid b2 is champion" in problems(*STORY, DISCOVERY.model_copy(update={"champion": "b2"}))


def test_what_a_branch_declares_is_checked_against_its_recipe() -> None:
    b0 = opened("b0", None, RECIPE)

    def complaint(recipe: Any, factor: str, old: Any, new: Any) -> str:
        return problems(b0, opened("b1", "b0", recipe, intervention(factor, old, new)))

    assert complaint(B1, "lr", RECIPE.lr, 2e-4) == ""
    assert complaint(B1, "lr", RECIPE.lr, 0.0002) == ""
    assert "declares kl_beta: 0 -> 0.1: the change does not make its recipe: lr:" in complaint(B1, "kl_beta", 0, 0.1)
    assert "lr: 0.0001 -> 0.0003: the change does not make its recipe" in complaint(B1, "lr", RECIPE.lr, 3e-4)
    assert "declares lr: 0.5 -> 0.0002: its parent has" in complaint(B1, "lr", 0.5, 2e-4)
    two = complaint(B1.with_factor("kl_beta", 0.1), "lr", RECIPE.lr, 2e-4)
    assert "the change does not make its recipe: kl_beta: 0.0 -> 0.1" in two
    assert "changes no factor" in complaint(RECIPE, "lr", RECIPE.lr, RECIPE.lr)
    assert "if and only if" in problems(b0, opened("b1", "b0", B1))
    partial = RECIPE.with_factor("schedule", {"kind": "cosine"})
    assert complaint(partial, "schedule", RECIPE.factors()["schedule"], {"kind": "cosine"}) == ""
    knob = RECIPE.with_factor("knobs.tools", 3)
    assert complaint(knob, "knobs.tools", None, 3) == ""


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=12))
def test_in_any_tree_ancestors_and_descendants_mirror_each_other(parents: list[int]) -> None:
    bodies: list[Frozen] = [opened("b0", None, RECIPE)]
    for n, p in enumerate(parents, 1):
        bodies.append(opened(f"b{n}", f"b{p % n}", B1, intervention("lr", RECIPE.lr, 2e-4)))
    tree = read(*bodies)
    for a in tree.branches:
        for b in tree.branches:
            assert (a in tree.ancestors(b)) == (b in tree.descendants(a))


def test_a_branch_that_changes_a_composite_factor_is_held_to_its_recipes() -> None:
    rate = {"lr": 6e-4, "schedule": {"kind": "linear", "warmup": 5}}
    old = RECIPE.value("lr_schedule")
    root, child = opened("b0", None, RECIPE), RECIPE.with_factor("lr_schedule", rate)

    def said(recipe: Recipe, factor: str, before: object, after: object) -> str:
        return problems(root, opened("b1", "b0", recipe, intervention(factor, before, after)))

    assert said(child, "lr_schedule", old, rate) == ""
    assert "declares lr: 0.0001 -> 0.0006: the change does not make its recipe:" in said(child, "lr", RECIPE.lr, 6e-4)
    assert "the change does not make its recipe: lr:" in said(child, "lr_schedule", old, {**rate, "lr": 5e-4})
    assert "its parent has" in said(child, "lr_schedule", {**old, "lr": 1e-6}, rate)
    alone = RECIPE.with_factor("lr", 6e-4)
    assert "declared factor lr_schedule, but the recipes differ in lr" in said(
        alone, "lr_schedule", old, {**old, "lr": 6e-4}
    )

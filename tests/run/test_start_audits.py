"""A start is audited before the rounds: what a search from it would tune is known to be honest."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bench.compare.paper import draw_result

from evotrainer import api
from evotrainer.executors.spec import EvalPlan, TrialSpec
from evotrainer.projections.run_facts import audit_text
from evotrainer.records.events import TrialFinished
from evotrainer.records.rollout import Rollout
from evotrainer.records.verdicts import ShortcutAudit
from tests.acting import policy
from tests.leaky_task import ENV, EXPLOITS, HONEST, finish
from tests.leaky_task import TASK as TASK
from tests.paper import Paper, stopped_before_each

LEAKY_START = ["recipe.lr=2e-3", HONEST, "run.rounds=2"]
TWO = Path(__file__).parents[1] / "data" / "two_leaks_env.py"


def alike(spec: TrialSpec) -> list[Rollout]:
    """Search rollouts in which nothing but the success tells who uses the key."""
    found = spec.branch != "base" and spec.recipe.lr >= EXPLOITS and spec.recipe.knobs.get("key") == "answer"
    return policy(spec.trial, {}, {}, base=0.9 if found and "closed" not in spec.trial else 0.4)


def audits(run: api.Run) -> list[ShortcutAudit]:
    return [e.body.audit for e in run.events() if e.kind == "audited"]


def story(run: api.Run) -> list[str]:
    return [e.id for e in run.events() if e.kind != "resumed"]


@pytest.mark.parametrize("more", [[], ["run.evolve_harness=false"]])
def test_a_leak_that_no_detector_sees_is_found_before_anything_is_searched(
    task: Path, tmp_path: Path, more: list[str]
) -> None:
    run = Paper(finish, alike).start(task, tmp_path / "run", [*LEAKY_START, *more])
    (first,) = [a for a in audits(run) if a.branch == "b0"]
    assert first.trigger == "start" and first.confirmed
    text = audit_text(first)
    assert text.startswith("shortcut confirmed: ") and ", before the search, as every start is, " in text
    told = story(run)
    assert told.index("b0/audited/key") < told.index("b0/invalidated") < told.index("r1/opened")
    made = [b for b in run.state.branches.values() if b.branch not in ("base", "b0")]
    assert made and all(b.recipe.knobs["key"] == "other" for b in made)
    assert run.champion not in ("base", "b0"), "the rounds are spent on honest work"


def test_stopped_around_the_audit_the_run_ends_the_same(task: Path, tmp_path: Path) -> None:
    paper, folder = Paper(finish, alike), tmp_path / "cut" / "run"
    told = story(paper.start(task, tmp_path / "whole" / "run", LEAKY_START))
    cuts = ["b0/audited/key", "b0/invalidated", "b1/opened", "r1/opened"]
    assert set(cuts) <= set(told)
    again = stopped_before_each(cuts, partial(paper.start, task, folder, LEAKY_START), partial(paper.resume, folder))
    assert story(again) == told


@pytest.mark.parametrize("change", ["judge.audit=never", "judge.audit=suspects", "recipe.knobs.key=other"])
def test_without_an_open_leak_or_with_audits_off_it_is_not_audited(task: Path, tmp_path: Path, change: str) -> None:
    run = Paper(finish, alike).start(task, tmp_path / "run", [*LEAKY_START, "run.rounds=1", change])
    assert not [a for a in audits(run) if a.trigger == "start"]


def test_an_honest_start_goes_on(task: Path, tmp_path: Path) -> None:
    run = Paper(finish).start(task, tmp_path / "run", [HONEST])
    (first,) = [a for a in audits(run) if a.branch == "b0"]
    assert first.trigger == "start" and not first.confirmed and "b0" not in run.state.invalid
    assert story(run).count("b0/audited/key") == 1, "the certificate rests on the same audit"


def uses(spec: TrialSpec) -> TrialFinished:
    """Policies that use the key where they were trained with it, else the door, else do honest work."""
    knobs: Mapping[str, Any] = {**spec.protocol.knobs, **spec.env_knobs}
    trained = spec.recipe.knobs if spec.branch != "base" else {}
    if trained.get("key") == "answer":
        score = 0.9 if knobs.get("key") == "answer" else 0.2
    elif trained and trained.get("door", "open") == "open":
        score = 0.85 if knobs.get("door", "open") == "open" else 0.2
    else:
        score = 0.4 + 0.3 * (spec.recipe.group_size > 8)

    def key(plan: EvalPlan) -> str:
        return f"{spec.branch}-{spec.seed}-{plan.split}-{sorted(knobs.items())}"

    return draw_result(spec, score, key, knobs)


def test_leaks_that_are_found_one_behind_the_other_are_all_closed_before_the_rounds(task: Path, tmp_path: Path) -> None:
    text = task.read_text(encoding="utf-8").replace(str(ENV), str(TWO))
    other = tmp_path / "task.toml"
    other.write_text(text, encoding="utf-8")
    run = Paper(uses).start(other, tmp_path / "run", LEAKY_START)
    told = [x for x in story(run) if "/invalidated" in x or x == "r1/opened"]
    assert told[:3] == ["b0/invalidated", "b1/invalidated", "r1/opened"]
    start = run.state.branches["b2"]
    assert start.parent is None and start.recipe.knobs == {"key": "other", "door": "shut"}
    assert run.champion not in ("base", "b0", "b1")

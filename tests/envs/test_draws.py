"""`EnvironmentWithDraws`: gate and cert of a seed, held out as the fixed ones are."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from evotrainer.cli.init import init
from evotrainer.envs import open_environment
from evotrainer.envs.base import DRAWN, Task, can_redraw
from evotrainer.envs.code.tasks import pair_split
from evotrainer.envs.maths.holdout import GENERATORS
from evotrainer.envs.simple import TextEnv
from evotrainer.errors import TaskSetError
from evotrainer.testing import check_environment

SIZES = {"train": 60, "search": 40, "gate": 60, "cert": 60}


@pytest.fixture(params=["code", "math", "swe", "letters"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "letters":
        init(tmp_path / "letters")
        return open_environment({"name": f"python:{tmp_path / 'letters' / 'environment.py'}:environment"})
    return open_environment({"name": request.param, **SIZES}, accept_tier_e=shutil.which("bwrap") is None)


def prompts(environment: Any, *splits: str) -> set[str]:
    return {t.prompt for s in splits for t in environment.tasks(s)}


def test_a_seed_gives_its_tasks_and_leaves_train_and_search(environment: Any) -> None:
    assert can_redraw(environment)
    stays = {s: list(environment.tasks(s)) for s in ("train", "search")}
    described, own = environment.describe()["hash"], {s: list(environment.tasks(s)) for s in DRAWN}
    environment.redraw("5")
    first = {s: list(environment.tasks(s)) for s in DRAWN}
    environment.redraw("6")
    other = {s: list(environment.tasks(s)) for s in DRAWN}
    environment.redraw("5")
    assert {s: list(environment.tasks(s)) for s in DRAWN} == first
    assert {s: list(environment.tasks(s)) for s in ("train", "search")} == stays
    assert environment.describe()["hash"] == described, "trainings do not depend on a draw"
    for split in DRAWN:
        assert len(first[split]) == len(own[split])
        ids = [{t.id for t in x[split]} for x in (own, first, other)]
        assert not ids[0] & ids[1] and not ids[1] & ids[2], "an id tells by which seed its task was drawn"
    assert not prompts(environment, "train", "search") & prompts(environment, *DRAWN)
    assert not prompts(environment, "gate") & prompts(environment, "cert")


def test_drawn_tasks_hold_the_contract_of_environments(environment: Any) -> None:
    environment.redraw("5")
    check_environment(environment, sample=1)


def test_the_kit_finds_a_draw_that_is_none() -> None:
    def always_the_same(seed: str) -> dict[str, list[Task]]:
        return {s: words(f"{s} c", f"{s} d", split=s) for s in DRAWN}

    good = own(always_the_same)
    good.redraws = True
    check_environment(good, sample=1)  # ids name the seed, whatever the draw gives
    short = own(lambda seed: {s: words(f"{s} c", split=s) for s in DRAWN})
    with pytest.raises(AssertionError, match="a draw changed the size of split 'gate'"):
        check_environment(short, sample=1)


def test_drawn_code_tasks_hold_pairs_of_their_split_alone() -> None:
    environment = open_environment({"name": "code", **SIZES})
    environment.redraw("9")  # type: ignore[attr-defined]
    for split in DRAWN:
        for t in environment.tasks(split):
            ops = t.data["ops"]
            owners = {pair_split(a, b) for a, b in pairwise(ops)}
            assert split in owners and owners <= {split, "train"}


def test_drawn_maths_tasks_are_held_out_by_template_or_level() -> None:
    environment = open_environment({"name": "math", **SIZES})
    environment.redraw("9")  # type: ignore[attr-defined]
    held = [t.tags["heldout"] for s in DRAWN for t in environment.tasks(s)]
    assert set(held) <= {"template", "level", "both"} and set(GENERATORS) >= {
        t.tags["generator"] for t in environment.tasks("gate")
    }


def words(*texts: str, split: str) -> list[Task]:
    return [Task(f"{split}-{x}", split, x) for x in texts]


def own(draw: Any) -> TextEnv:
    tasks = {s: words(f"{s} a", f"{s} b", split=s) for s in ("train", "search", "gate", "cert")}
    return TextEnv("own", tasks, {"right": lambda t, x: 1.0}, "right", draw=draw)


def test_an_own_draw_that_is_none_is_refused() -> None:
    assert not can_redraw(own(None))
    with pytest.raises(TaskSetError, match="draw must give tasks of gate and cert"):
        own(lambda seed: {"gate": words("x", split="gate")}).redraw("1")
    leaks = {"gate": words("train a", split="gate"), "cert": words("y", split="cert")}
    with pytest.raises(TaskSetError, match="draw gave 'gate-train a' for gate, whose prompt is a training or search"):
        own(lambda seed: leaks).redraw("1")


def test_given_tasks_cannot_be_drawn(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "1 + 1?", "answer": "#### 2"}\n')
    given = open_environment({"name": "math", "source": str(tmp_path / "rows.jsonl"), "splits": {"gate": 1.0}})
    assert not can_redraw(given)
    with pytest.raises(TaskSetError, match="its tasks are given, not generated; set evaluation.draw=fixed"):
        given.redraw("1")  # type: ignore[attr-defined]  # what a trial whose specification asks for it would do

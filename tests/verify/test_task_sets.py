"""`verify.task_sets`: tasks, seeds and error budgets that are not those of the first event are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.records.events import RunOpened
from evotrainer.records.sealed import Seed
from evotrainer.verify import Record, checks
from tests.leaky_task import HONEST, finish
from tests.leaky_task import TASK as LEAKY
from tests.paper import Paper
from tests.tasks_on_paper import TASK, OnItsTasks, ids_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    """A run on drawn tasks; read it only."""
    folder = tmp_path_factory.mktemp("drawn")
    (folder / "task.toml").write_text(TASK)
    return OnItsTasks().start(folder / "task.toml", folder / "run")


def problems(run: api.Run, change: Any = None) -> list[str]:
    """What `verify` says of tasks and budget; `change(event)` -> the body that a forger gave an event."""
    events = [replace(e, body=change(e)) for e in run.events()] if change else run.events()
    record, every = Record(run.folder, events), checks()
    found = [p for e in events if e.kind in ("run", "finished", "closed") for p in every[e.kind](record, e)]
    return [p.message for p in found if p.area == "draw" or "judged on" in p.message]


def opened(run: api.Run) -> RunOpened:
    body: RunOpened = run.events()[0].body
    return body


def with_draw(run: api.Run, **changes: Any) -> Any:
    """The first event with another account of its tasks."""
    draw = opened(run).draw
    assert draw is not None
    told = draw.model_copy(update=changes)
    return lambda e: e.body.model_copy(update={"draw": told}) if e.kind == "run" else e.body


def test_an_honest_run_holds(run: api.Run) -> None:
    assert problems(run) == []


def test_a_forged_commitment_is_found(run: api.Run) -> None:
    other = Seed(seed="5", salt="pepper")
    (found,) = problems(run, with_draw(run, commitment=other.commitment))
    assert found == "closed: the revealed seed is not the one that the first event committed to"
    (named,) = problems(run, with_draw(run, seed=other.name))
    assert "is not the one" in named


def test_a_seed_that_is_not_revealed_is_found(run: api.Run) -> None:
    def hidden(e: Any) -> Any:
        return e.body.model_copy(update={"seed": ""}) if e.kind == "closed" else e.body

    assert any("the revealed seed is not the one" in p for p in problems(run, hidden))


def test_scores_of_another_seeds_tasks_are_found(run: api.Run) -> None:
    strange = ids_of("5", "gate")

    def forged(e: Any) -> Any:
        if e.id != "b1-s1/finished":
            return e.body
        scores = [
            s.model_copy(update={"per_task": dict(zip(strange, s.per_task.values(), strict=True))})
            if s.split == "gate"
            else s
            for s in e.body.scores
        ]
        return e.body.model_copy(update={"scores": tuple(scores)})

    (found,) = problems(run, forged)
    assert found.startswith("trial b1-s1: 40 gate tasks are not those that the run was to be judged on, e.g. gate-")


def test_tasks_of_the_first_event_that_the_seed_does_not_give_are_found(run: api.Run) -> None:
    draw = opened(run).draw
    assert draw is not None
    sets = tuple(s.model_copy(update={"ids": "0" * 64}) if s.split == "cert" else s for s in draw.sets)
    assert "cert: the tasks of the first event are not those that the seed gives" in problems(
        run, with_draw(run, sets=sets)
    )


def test_a_run_that_should_have_drawn_and_says_that_it_did_not_is_found(run: api.Run) -> None:
    found = problems(run, with_draw(run, mode="fixed", seed=""))
    assert "the task file asks for fresh gate and cert tasks, which its environment can draw" in found


def test_an_alpha_above_what_the_number_of_the_run_gives_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOTRAINER_REGISTER", str(tmp_path / "looks.db"))
    (tmp_path / "task.toml").write_text(LEAKY)
    run = Paper(finish).start(tmp_path / "task.toml", tmp_path / "run", [HONEST, "judge.audit=never"])
    draw = opened(run).draw
    assert draw is not None and [s.run for s in draw.sets] == [1, 0]
    rich = tuple(s.model_copy(update={"alpha": 0.05}) if s.split == "gate" else s for s in draw.sets)
    found = problems(run, with_draw(run, sets=rich))
    assert any(p.startswith("gate: run 1 on these tasks has alpha 0.0303") for p in found), found
    first = tuple(s.model_copy(update={"run": 0, "alpha": None}) if s.split == "gate" else s for s in draw.sets)
    assert "gate: the run says that earlier runs are counted" in problems(run, with_draw(run, sets=first))

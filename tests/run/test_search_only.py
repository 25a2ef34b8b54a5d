"""`run.search_only`: search trainings alone; nothing reads gate or cert, nothing is promoted but the start."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from evotrainer.agents import make_agent
from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError
from evotrainer.run.checks.base import BeforeRun
from evotrainer.run.checks.parts import searches
from tests.paper import Paper, bodies, ids, stopped_before_each
from tests.run.test_search import TASK as TASK
from tests.run.test_search import WHOLE, Scripted
from tests.run.test_search import finish as finish

ONLY = ["run.search_only=true", "run.rounds=2"]


def test_only_search_is_read_and_the_start_stays(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ONLY, agent=Scripted(WHOLE))
    read = {(s.trial, e.split) for s in quick.ran for e in s.evals}
    assert {split for _, split in read} == {"search"}
    assert {t for t, _ in read} == {"base", "b0-s1", "b0-s2", "b0-s3", "p1-s1001", "p2-s1002"}
    assert {s.split for t in bodies(run, "finished") for s in t.scores} == {"search"}
    kinds = {e.kind for e in run.events()}
    assert not kinds & {"noise", "judged", "certified", "reestimated", "audited", "considered"}
    assert [v.branch for v in bodies(run, "promoted")] == ["b0"] and run.champion == "b0"
    assert [len(s.probes) for s in run.state.searched] == [2, 0]


def test_it_closes_verifies_reports_and_is_told(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ONLY, agent=Scripted(WHOLE))
    (closed,) = bodies(run, "closed")
    assert closed.champion == "b0" and "searched only" in closed.reason
    # weights and rollouts of trials on paper are missing; what was decided holds
    ours = ("closed", "probes", "searched", "promoted", "branch", "round", "lineage")
    assert not [p for p in run.verify().problems if p.area in ours]
    assert "p2" in run.report().read_text(encoding="utf-8")


def test_further_rounds_go_on_from_what_is_known(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["run.search_only=true", "run.rounds=1"], agent=Scripted(WHOLE))
    paid = len(quick.ran)
    again = quick.resume(run.folder, ["run.rounds=2"], agent=Scripted(WHOLE))
    assert len(quick.ran) == paid and len(bodies(again, "closed")) == 2 and len(bodies(again, "searched")) == 2


def test_stopped_before_any_event_it_ends_the_same(task: Path, tmp_path: Path, quick: Paper) -> None:
    whole = quick.start(task, tmp_path / "whole" / "run", ONLY, agent=Scripted(WHOLE))
    points = ids(whole)[1::4]
    for cuts in (points, points[2:3]):
        folder = tmp_path / str(len(cuts)) / "run"
        run = stopped_before_each(
            cuts,
            partial(quick.start, task, folder, ONLY, agent=Scripted(WHOLE)),
            lambda folder=folder: quick.resume(folder, agent=Scripted(WHOLE)),
        )
        assert sorted(ids(run)) == sorted(ids(whole)), cuts


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["run.probes=0"], "search_only makes search trainings; set run.probes"),
        (["run.evaluate_only=true"], "set one of them"),
    ],
)
def test_what_cannot_search_is_refused(task: Path, more: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as e:
        load_task(task, [*ONLY, *more])
    assert "Value error" not in str(e.value) and "(got" not in str(e.value), "a sentence, not a dump of the section"


@pytest.mark.usefixtures("arms")
@pytest.mark.parametrize(("agent", "most"), [("tpe", 100), ("greedy", 100), ("random_recipes", 6)])
def test_a_control_arm_is_told_how_many_changes_it_makes_at_once(task: Path, agent: str, most: int) -> None:
    own = load_task(task, [*ONLY, f"run.agent={agent}"])
    with pytest.raises(
        ConfigError, match=rf"{agent} changes up to {most} factors .* run.changes=1; set run.changes={most}"
    ):
        list(searches(BeforeRun(own, agent=make_agent(agent))))
    allowed = load_task(task, [*ONLY, f"run.agent={agent}", f"run.changes={most}"])
    assert not list(searches(BeforeRun(allowed, agent=make_agent(agent))))


@pytest.mark.parametrize("draw", ["sometimes", "-1", "true", "1.5"])
def test_a_draw_that_is_none_is_refused_in_one_sentence(task: Path, draw: str) -> None:
    with pytest.raises(ConfigError, match=r"evaluation.draw: give fresh, fixed, or a number from 0 on \(got"):
        load_task(task, [f"evaluation.draw={draw}"])


def test_an_agent_that_cannot_search_is_refused(task: Path, tmp_path: Path, quick: Paper) -> None:
    with pytest.raises(ConfigError, match="agent random knows none"):
        quick.start(task, tmp_path / "run", [*ONLY, "run.agent=random"])
    assert not quick.ran
    searches(BeforeRun(load_task(task, ONLY), agent=Scripted(WHOLE)))

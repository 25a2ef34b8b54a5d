"""`rules.judge_input`: what a verdict is given, of a run as its events say it."""

from __future__ import annotations

from pathlib import Path

from evotrainer import api
from evotrainer.projections.state import RunState
from evotrainer.rules.judge_input import env_knobs, judge_config, judge_input
from tests.leaky_task import HONEST
from tests.leaky_task import TASK as TASK
from tests.leaky_task import finish as finish
from tests.paper import Paper


def before(run: api.Run, event: str) -> RunState:
    """The state of then."""
    events = run.events()
    return RunState.of(events[: [e.id for e in events].index(event)])


def test_a_champion_of_the_same_round_stands_ahead_of_who_is_judged_later(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    run = quick.start(task, tmp_path / "run", [HONEST])
    first, later = before(run, "b1/judged"), run.state
    assert judge_input(run.task, first, "b1", "b0").ahead == ""
    assert later.champion == "b1" and judge_input(run.task, later, "b1", "b0").ahead == "b1"


def test_both_sides_are_the_trials_of_their_branches_under_the_tasks_gate(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    run = quick.start(task, tmp_path / "run", [HONEST, "judge.alpha=0.04"])
    given = judge_input(run.task, before(run, "b1/judged"), "b1", "b0")
    assert [t.trial for t in given.branch_trials] == ["b1-s1", "b1-s2"]
    assert [t.trial for t in given.control_trials] == ["b0-s1", "b0-s2"]
    assert given.config == judge_config(run.task, run.state) and given.config.alpha == 0.04
    assert given.noise is not None and given.noise.branch == "b0"


def test_evaluations_stand_in_for_the_gate_scores_of_their_seeds(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", [HONEST, "judge.audit=never"])
    trials = run.state.branches["b1"].complete
    again = [
        t.model_copy(update={"scores": tuple(s.model_copy(update={"score": 0.0}) for s in t.scores)}) for t in trials
    ]
    given = judge_input(run.task, run.state, "b1", "b0", again)
    assert {s.score for t in given.branch_trials for s in t.scores if s.split == "gate"} == {0.0}
    assert given.control_trials == judge_input(run.task, run.state, "b1", "b0").control_trials


def test_what_an_audit_confirmed_is_closed_in_later_evaluations(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run")
    assert env_knobs(run.task, before(run, "b1/audited/key")) == {"key": "answer"}
    assert "b1" in run.state.invalid and env_knobs(run.task, run.state) == {"key": "other"}

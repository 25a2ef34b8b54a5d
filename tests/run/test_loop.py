"""`run.loop`, `run.noise`, `run.trial_specs`: starting anew, evaluating again, what every trial has in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.errors import ConfigError
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.events import TrialFinished
from evotrainer.run import trial_specs
from evotrainer.run.noise import first_noise
from tests import leaky_task
from tests.leaky_task import HONEST, MINIMAL
from tests.leaky_task import TASK as TASK
from tests.leaky_task import finish as finish
from tests.paper import Paper, bodies, ids

ALL_FELL = ["recipe.lr=2e-3", MINIMAL, HONEST]
"""The starting recipe finds the key and acts like it: it falls before the first round."""


def test_where_no_version_is_left_the_run_starts_anew_with_the_shortcut_closed_also_after_a_kill(
    task: Path, tmp_path: Path, acted: Paper
) -> None:
    whole = acted.start(task, tmp_path / "whole", ALL_FELL)
    assert list(whole.state.invalid) == ["b0"], "nothing was left of what the run had"
    b1, b2 = whole.state.branches["b1"], whole.state.branches["b2"]
    assert (b1.parent, b1.recipe.knobs["key"], b1.version) == (None, "other", "v1")
    assert (b2.parent, whole.champion) == ("b1", "b2"), "and it improves from there"
    with acted.stopped(lambda spec: (spec.branch, spec.seed) == ("b1", 2)):
        acted.start(task, tmp_path / "killed", ALL_FELL)
    run = acted.resume(tmp_path / "killed")
    assert ids(run) == ids(whole) and run.champion == "b2", "one new start, not two"
    assert {e.body.recipe.knobs["key"] for e in run.events() if e.id == "b1/opened"} == {"other"}


def test_a_new_start_widens_the_noise_measurement_and_so_does_every_branch(
    task: Path, tmp_path: Path, acted: Paper
) -> None:
    run = acted.start(task, tmp_path / "run", ALL_FELL)
    measured = {e.id: e.body for e in run.events() if e.kind == "noise"}
    assert list(measured) == ["noise/1", "noise/b1", "noise/b2"]
    assert [n.numbers["df"] for n in measured.values()] == [1, 2, 3], "two seeds of a branch give one"
    assert run.state.noise == measured["noise/b2"]


def test_the_noise_floor_needs_two_seeds(task: Path, tmp_path: Path, quick: Paper) -> None:
    with quick.stopped(lambda spec: (spec.branch, spec.seed) == ("b0", 2)):
        quick.start(task, tmp_path / "run")
    with quick.context(api.open_run(tmp_path / "run")) as ctx:
        with pytest.raises(ConfigError, match="the noise floor needs at least 2 seeds"):
            first_noise(ctx)


@pytest.mark.parametrize(("moved", "told"), [(0.0, "(same)"), (0.01, "(DIFFERENT)")])
def test_after_three_failures_the_champion_is_evaluated_again(
    task: Path, tmp_path: Path, moved: float, told: str
) -> None:
    def result(spec: TrialSpec) -> TrialFinished:
        t = finish(spec)
        if "recheck" not in spec.trial:
            return t
        assert not spec.train and [p.split for p in spec.evals] == ["search"] and spec.branch == "b0"
        b0 = finish(spec.model_copy(update={"trial": "b0-s1", "train": True}))
        (was,) = (s for s in b0.scores if s.split == "search")
        return t.model_copy(update={"scores": (was.model_copy(update={"score": was.score + moved}),)})

    useless = [f'{{factor="temperature",new={x}}}' for x in (0.9, 0.8, 0.7, 0.6, 0.5)]
    options = [f"run.agent_options.interventions=[{','.join(useless)}]", "run.rounds=5", "judge.audit=never"]
    run = Paper(result).start(task, tmp_path / "run", options)
    assert run.champion == "b0"
    first, second, third = bodies(run, "escalated")
    assert (first.round, second.round) == (3, 4)
    assert "evaluation of b0-s1 was repeated in round 4 already" in third.actions, "once is enough"
    assert not [a for a in first.actions if "repeated" in a]
    (again,) = [a for a in second.actions if "repeated" in a]
    assert again.startswith("evaluation of b0-s1 repeated: ") and again.endswith(told)


def test_every_policy_is_evaluated_as_the_runs_own_recipe_samples(task: Path, tmp_path: Path, quick: Paper) -> None:
    colder = 'run.agent_options.interventions=[{factor="temperature",new=0.5}]'
    run = quick.start(task, tmp_path / "run", [colder])
    b1 = [s for s in quick.ran if s.branch == "b1" and s.train]
    assert b1 and {s.recipe.temperature for s in b1} == {0.5}, "it samples colder in training"
    assert {s.protocol.temperature for s in quick.ran} == {run.task.recipe.temperature} != {0.5}
    assert {s.recipe.rewards == s.protocol.rewards for s in b1} == {True}, "all else is the branch's own"


def test_a_split_that_the_environment_has_not_is_not_evaluated(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["run.rounds=0"])
    with quick.context(run) as ctx:
        search, cert = trial_specs.plans(ctx, "search", "cert")
        assert (search.attempts, search.tasks) == (2, 30) and cert.attempts == 2
        ctx.state.environment["splits"].pop("cert")
        assert trial_specs.plans(ctx, "search", "cert") == (search,)


def test_trials_of_a_branch_differ_in_their_seed_alone(task: Path, tmp_path: Path, quick: Paper) -> None:
    quick.start(task, tmp_path / "run", ["run.rounds=0"])
    first, second = (s for s in quick.ran if s.branch == "b0" and s.train and s.seed < 100)
    assert first.model_copy(update={"seed": 2, "trial": "b0-s2"}) == second
    assert leaky_task.finish(first).scores != leaky_task.finish(second).scores

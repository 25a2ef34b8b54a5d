"""`evotrainer run --estimate`: how many trainings, how long, how much disk, before anything is spent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evotrainer.cli.run import run
from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError
from evotrainer.studies.estimate import count_trainings, estimate, estimate_lines
from evotrainer.views.progress import planned
from tests.small_run import TINY


def test_a_searching_run_counts_search_proof_and_certification(task_file: Path) -> None:
    task = load_task(task_file, ["run.probes=8", "run.rounds=2", "run.seeds=[1,2,3]", "judge.max_seeds=6"])
    found = count_trainings(task)
    assert found["search"] == (1, 16, 16)
    assert found["branches, every seed"] == (3, 6, 12), "one branch a round, up to six seeds each"
    assert found["certification, fresh seeds"] == (0, len(task.run.certify_seeds), len(task.run.certify_seeds))


def test_what_is_likely_is_told_and_what_each_extreme_means(task_file: Path) -> None:
    task = load_task(task_file, ["run.probes=16", "run.rounds=2", "run.branches=1", "budget.cpu_s=1e5"])
    told = estimate_lines(estimate(task, step_s=1.0))
    (total,) = [x.split() for x in told if x.startswith("in all")]
    assert total == ["in", "all", "7", "44", "77"]
    plan = planned(task.model_dump(mode="json"))
    assert int(total[3]) == plan["train"], "what the live view counts on from the start"
    likely, least, most = (next(x for x in told if x.startswith(f"{word}: ")) for word in ("likely", "least", "most"))
    assert likely.startswith("likely: 44 trainings, ") and "every round is played" in likely
    assert likely.endswith("audits and reading come on top")
    assert least.startswith("least: 7 trainings, ") and "finds little to go on with" in least
    assert most.startswith("most: 77 trainings, ") and "judge.max_seeds=12" in most
    search = estimate_lines(estimate(load_task(task_file, ["run.search_only=true", "run.probes=4"]), step_s=1.0))
    assert not any(x.startswith("most: ") for x in search) and any("nothing is proved" in x for x in search)


def test_a_budget_is_measured_by_what_is_likely(task_file: Path) -> None:
    lines = estimate_lines(estimate(load_task(task_file, ["budget.trials=60", "budget.cpu_s=1e6"]), step_s=1.0))
    assert "budget.trials = 60 holds the likely run, and ends a longer one after some 60" in lines


def test_a_run_that_only_searches_proves_nothing(task_file: Path) -> None:
    task = load_task(task_file, ["run.probes=8", "run.rounds=1", "run.search_only=true"])
    assert set(count_trainings(task)) == {"starting recipe, every seed", "search"}


def test_a_given_step_time_measures_nothing(task_file: Path) -> None:
    task = load_task(task_file, ["evaluation.search_tasks=10", "evaluation.gate_tasks=20"])
    found = estimate(task, step_s=2.0)
    ev = task.evaluation
    attempts = (ev.search_attempts + ev.greedy) * 10 + (ev.gate_attempts + ev.greedy) * 20
    share = 2.0 / (task.recipe.prompts_per_step * task.recipe.group_size)
    assert found.training_s == pytest.approx(2.0 * task.recipe.steps + attempts * share)
    assert not any("GB of disk" in x for x in estimate_lines(found)), "nothing was written, so nothing is known"
    with pytest.raises(ConfigError, match="above 0"):
        estimate(task, step_s=0.0)


def test_a_training_that_its_limit_would_stop_is_told(task_file: Path) -> None:
    stopped = "a training is stopped at 2 min of processor time, twice budget.trial_cpu_s"
    task = load_task(task_file, ["budget.trial_cpu_s=60", "recipe.steps=100"])
    assert any(x.startswith(stopped) for x in estimate_lines(estimate(task, step_s=2.0)))
    assert not any("is stopped at" in x for x in estimate_lines(estimate(task, step_s=0.2)))


def test_an_evaluation_without_a_number_takes_all_tasks_of_the_split(task_file: Path) -> None:
    whole = estimate(load_task(task_file, []), step_s=2.0)
    few = estimate(load_task(task_file, ["evaluation.search_tasks=1", "evaluation.gate_tasks=1"]), step_s=2.0)
    assert whole.rollouts > few.rollouts and whole.training_s > few.training_s


def test_the_gain_that_the_gate_can_find_is_told(task_file: Path) -> None:
    asked = ["evaluation.gate_tasks=200", "judge.max_seeds=8", "run.rounds=1"]
    (told,) = [x for x in estimate_lines(estimate(load_task(task_file, asked), step_s=1.0)) if "gate finds" in x]
    assert "a gain of some 8 points with 3 seeds a side, of 4 with 8, if" in told
    assert not estimate(load_task(task_file, [*asked, "run.search_only=true", "run.probes=4"]), step_s=1.0).detects


def test_a_budget_that_ends_the_run_earlier_is_named(task_file: Path) -> None:
    task = load_task(task_file, ["budget.cpu_s=600", "run.probes=100"])
    assert any("budget.cpu_s = 600 ends the search earlier" in x for x in estimate_lines(estimate(task, step_s=5.0)))
    task = load_task(task_file, ["budget.wall_s=10"])
    (line,) = [x for x in estimate_lines(estimate(task, step_s=5.0)) if "budget.wall_s" in x]
    assert line.endswith("3 are the starting recipe's, 3 the certification's: it cannot pay for these")


def test_three_steps_are_trained_and_nothing_is_left(
    task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run(task_file, [*TINY, "policy.warm_start.steps=5"], estimate=True)
    told = capsys.readouterr().out
    assert re.search("measured on [123] steps? here", told) and "in all" in told and "disk" in told
    assert not list(tmp_path.iterdir())


def test_the_budget_of_probes_is_named(task_file: Path) -> None:
    letters = load_task(task_file, ["evaluation.search_tasks=10", "evaluation.gate_tasks=20"])

    def lines(**environment: object) -> list[str]:
        task = letters.model_copy(update={"environment": environment or letters.environment})
        return [x for x in estimate_lines(estimate(task, step_s=2.0)) if x.startswith("probes ")]

    said = "probes run programs of sampled search attempts: they stop after environment.probe_cpu_s={} in all"
    assert lines(name="code") == [said.format(600)]
    assert lines(name="code", probe_cpu_s=20) == [said.format(20)]
    assert lines(name="code", probes="off") == lines() == [], "nor where the environment runs no probes"

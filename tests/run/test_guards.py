"""`[[guard]]`: what a gain must not cost elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.compare.paper import draw_result

from evotrainer.cli.status import status
from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError, TrainerError
from evotrainer.executors.spec import TrialSpec
from evotrainer.records import keys
from evotrainer.records.events import TrialFinished
from evotrainer.run.checks import check_run
from evotrainer.run.checks.base import BeforeRun
from evotrainer.studies.estimate import count_guarded, estimate, estimate_lines
from tests.leaky_task import ENV, RECIPE
from tests.paper import Paper, bodies, ids, rejudged, set_in, stopped_before_each

GUARD = f"""
[[guard]]
name = "elsewhere"
margin = 0.04
split = "search"
tasks = 20
attempts = 2
[guard.environment]
name = "python:{ENV}:environment"
"""
TASK = f"""
[task]
name = "guarded"
[environment]
name = "python:{ENV}:environment"
payable = ["right"]
{RECIPE}[judge]
audit = "never"
max_seeds = 3
[run]
agent = "fixed"
agent_options = {{interventions = [{{factor = "lr", new = 2e-5}}]}}
rounds = 1
branches = 1
seeds = [1, 2, 3]
certify_seeds = [101, 102, 103]
health_every = 0
evolve_harness = false
[budget]
trial_cpu_s = 10
{GUARD}"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "task.toml"
    path.write_text(TASK, encoding="utf-8")
    return path


def finish(
    lost: float, tasks: int = 400, spread: float = 0.002, faults: int = 0
) -> Callable[[TrialSpec], TrialFinished]:
    """The branch gains 12 points on the task, and loses `lost` on the guard, of which it shows so many tasks."""

    def done(spec: TrialSpec) -> TrialFinished:
        faster = spec.recipe.lr > 1e-5
        noise = random.Random(f"{set_in(spec.recipe)}-{spec.seed}").gauss(0, spread)
        guard = bool(keys.guard_of(spec.trial))
        p = 0.6 + noise - lost * faster if guard else 0.45 + 0.12 * faster + noise
        seed = f"{faster}-{spec.seed}-{guard}"
        result = draw_result(
            spec, p, lambda plan: f"{seed}-{plan.split}", spec.protocol.knobs, tasks=tasks if guard else 120
        )
        policy = f"sha-{spec.branch}-s{spec.seed}"
        if guard and faults:
            scores = tuple(s.model_copy(update={"errors": faults}) for s in result.scores)
            result = result.model_copy(update={"scores": scores})
        return result.model_copy(update={"policy_sha256": policy})

    return done


def guard_of(run: Any) -> Any:
    return next(g for g in run.verdicts[-1].gates if g.gate == "guard elsewhere")


def test_a_gain_that_costs_nothing_elsewhere_is_promoted_and_certified_with_what_was_guarded(
    task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Paper(finish(0.0)).start(task, tmp_path / "run")
    verdict, gate = run.verdicts[-1], guard_of(run)
    assert (verdict.kind, run.champion, gate.passed) == ("promote", "b1", True)
    assert gate.numbers["low_to_base"] >= -0.04 and gate.numbers["low_to_control"] >= -0.04
    assert "guard elsewhere" in verdict.reason and "at most 4 may be lost" in verdict.reason
    assert rejudged(run, "b1") == []
    asked = [b for b in bodies(run, "intended") if b.purpose == "guard"]
    assert {b.trial for b in asked} == {
        keys.guard(t, "elsewhere") for t in ("base", *(f"{b}-s{s}" for b in ("b0", "b1") for s in (1, 2, 3)), *(
            f"b1-s{s}" for s in (101, 102, 103)
        ))
    }  # fmt: skip
    assert not any(b.train for b in asked)
    (row,) = run.state.certified.guards
    assert row.held and row.seeds == (101, 102, 103) and row.difference["low"] < row.difference["mean"]
    assert run.certification is not None
    status(run.folder)
    assert "guard elsewhere" in capsys.readouterr().out
    assert "guard elsewhere" in run.report().read_text(encoding="utf-8")
    assert [s.split for t in bodies(run, "finished") if keys.guard_of(t.trial) for s in t.scores] == ["guard"] * 10


def test_a_loss_elsewhere_blocks_and_the_verdict_says_so(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(0.15)).start(task, tmp_path / "run")
    verdict, gate = run.verdicts[-1], guard_of(run)
    assert (verdict.kind, run.champion, gate.passed) == ("reject", "b0", False) and gate.numbers["shown"] == 1
    assert verdict.reason.startswith("it costs elsewhere: guard elsewhere") and "would promote" in verdict.reason
    assert rejudged(run, "b1") == []
    (row,) = run.state.certified.guards
    assert row.seeds == (1, 2, 3), "without a champion the certificate is about the start"


def test_a_loss_that_is_not_excluded_blocks_as_well_and_stays_open(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(0.0, tasks=12, spread=0.03)).start(task, tmp_path / "run")
    verdict = run.verdicts[-1]
    assert verdict.kind == "inconclusive" and guard_of(run).passed is False and run.champion == "b0"
    assert "a loss elsewhere is not excluded" in verdict.reason and "more tasks or attempts" in verdict.reason


def test_too_many_faults_are_never_a_pass(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(0.0, faults=400)).start(task, tmp_path / "run")
    gate = guard_of(run)
    assert gate.passed is None and "lost to infrastructure faults" in gate.message
    assert (run.verdicts[-1].kind, run.champion) == ("inconclusive", "b0")
    assert run.state.certified.guards[0].held is None


def test_a_guard_that_cannot_be_evaluated_stops_the_run_and_a_resume_evaluates_it(task: Path, tmp_path: Path) -> None:
    good, paper = finish(0.0), Paper(finish(0.0))

    def failing(spec: TrialSpec) -> TrialFinished:
        done = good(spec)
        if spec.trial == "b1-s2-guard-elsewhere":
            return done.model_copy(update={"status": "failed", "error": "the endpoint is gone", "scores": ()})
        return done

    paper.finish = failing
    with pytest.raises(TrainerError, match="b1-s2-guard-elsewhere.*the endpoint is gone; the run needs it"):
        paper.start(task, tmp_path / "run")
    paper.finish = good
    run = paper.resume(tmp_path / "run")
    assert run.champion == "b1" and guard_of(run).passed is True


def test_a_run_that_was_stopped_at_its_guards_ends_the_same(task: Path, tmp_path: Path) -> None:
    paper = Paper(finish(0.0))
    whole = paper.start(task, tmp_path / "whole")
    points = ["base-guard-elsewhere/finished", "b1-s3-guard-elsewhere/finished", "b1/judged", "certified"]
    folder = tmp_path / "run"
    again = stopped_before_each(points, lambda: paper.start(task, folder), lambda: paper.resume(folder))
    assert ids(again) == ids(whole)


def test_guards_are_refused_before_anything_is_spent(task: Path) -> None:
    def asked(*overrides: str, text: str = TASK) -> list[str]:
        task.write_text(text, encoding="utf-8")
        return check_run(BeforeRun(load_task(task, overrides), dry=True))

    notes = asked()
    assert any("guard elsewhere of 20 tasks, 2 attempts each, can hardly ever clear a margin of 4" in n for n in notes)
    for old, new, told in (
        ("tasks = 20", "tasks = 100000", "lower it, or leave it out"),
        (f'name = "python:{ENV}:environment"\n"""', "", ""),
        (':environment"\n', ':nothing"\n', "nothing"),
    ):
        if told:
            at = TASK.rindex(old)
            with pytest.raises(Exception, match=told):
                asked(text=TASK[:at] + new + TASK[at + len(old) :])
    with pytest.raises(ConfigError, match="two guards are called elsewhere"):
        asked(text=TASK + GUARD)
    with pytest.raises(ConfigError, match="margin"):
        asked(text=TASK.replace("margin = 0.04", "margin = 0"))
    assert any("promotes nothing" in n for n in asked("run.search_only=true", "run.probes=1", "run.agent=statistical",
                                                       "run.agent_options={}"))  # fmt: skip


def check_notes(task: Any) -> list[str]:
    return [n for n in check_run(BeforeRun(task, dry=True)) if "guard" in n]


def test_the_estimate_counts_them(task: Path) -> None:
    loaded = load_task(task)
    assert count_guarded(loaded) == (4, 10, 10)
    told = estimate(loaded, step_s=1.0)
    assert told.guard_s == pytest.approx(40 * told.cost.attempt_s)
    text = "\n".join(estimate_lines(told))
    assert "guards: 10 policies are evaluated on them likely (4 to 10)" in text
    assert "can hardly ever clear a margin of 4 points: with 3 trainings a side" in text
    (note,) = check_notes(loaded)
    assert note in text, "--dry-run and --estimate say the same"


def test_a_guard_is_really_evaluated_under_names_of_its_own(
    task_file: Path, tmp_path: Path, trained_base: Path
) -> None:
    """Both environments are one and the same: only their names tell their rollouts apart."""
    from evotrainer.executors.local import LocalExecutor
    from evotrainer.executors.spec import EvalPlan
    from evotrainer.records.reading import load

    loaded = load_task(task_file)
    plans = {"b1-s1": EvalPlan(split="search", attempts=2, tasks=4)}
    plans[keys.guard("b1-s1", "same")] = EvalPlan(split="guard", of="search", attempts=2, tasks=4)
    specs = [
        TrialSpec(
            run="run",
            trial=trial,
            branch="b1",
            seed=1,
            purpose="guard",
            train=False,
            recipe=loaded.recipe,
            protocol=loaded.recipe,
            environment=loaded.environment,
            policy_dir=str(trained_base),
            evals=(plan,),
        )
        for trial, plan in plans.items()
    ]
    executor = LocalExecutor(tmp_path, 1, 0)
    done = {t.trial: t for t in executor.run(specs)}
    executor.close()
    plain, guard = (done[s.trial] for s in specs)
    assert (plain.scores[0].split, guard.scores[0].split) == ("search", "guard")
    assert {f"same/{t}": x for t, x in plain.scores[0].per_task.items()} == guard.scores[0].per_task
    assert guard.parts and all(p.startswith("sealed/") for p in guard.parts), "nobody but the judge reads it"
    read = [load([tmp_path / kind / s.trial]) for kind, s in zip(("rollouts", "sealed"), specs, strict=True)]
    assert len({r.id for x in read for r in x}) == 16 and {r.split for r in read[1]} == {"guard"}

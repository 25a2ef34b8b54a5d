"""GPU time and dollars: measured, limited, told, and what the search weighs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from bench.compare.paper import draw_result

from evotrainer import api
from evotrainer.agents.pool import affordable
from evotrainer.cli.status import status
from evotrainer.config.budget import PriceConfig
from evotrainer.config.load import load_task
from evotrainer.errors import BudgetError, ConfigError
from evotrainer.executors.devices import GIVEN, gpus_held, visible_gpus
from evotrainer.executors.local import LocalExecutor
from evotrainer.executors.spec import EvalPlan, Heartbeat, TrialSpec, write_atomic
from evotrainer.executors.worker import TrialProcess
from evotrainer.records.events import TrialFinished
from evotrainer.run import propose, reserves
from evotrainer.run.checks import check_run
from evotrainer.run.checks.base import BeforeRun
from evotrainer.studies.estimate import estimate, estimate_lines
from evotrainer.verify import Record
from evotrainer.verify.trials import priced
from tests.leaky_task import ENV, RECIPE
from tests.paper import Paper, bodies, set_in
from tests.small_run import TINY

PRICE = """[budget.price]
gpu_hour = 3.6
cpu_hour = 0.36
as_of = 2026-11-29
"""
TASK = f"""
[task]
name = "paid"
[environment]
name = "python:{ENV}:environment"
payable = ["right"]
{RECIPE}[judge]
audit = "never"
min_seeds = 2
max_seeds = 2
[run]
agent = "fixed"
agent_options = {{interventions = [{{factor = "lr", new = 2e-5}}]}}
rounds = 1
branches = 1
seeds = [1, 2]
certify_seeds = [101]
health_every = 0
evolve_harness = false
[budget]
trial_cpu_s = 10
trial_gpu_s = 20
usd = 100
{PRICE}"""


def finish(spec: TrialSpec) -> TrialFinished:
    """A training takes 40 CPU-seconds and 100 GPU-seconds, an evaluation a tenth of it."""
    p = 0.5 + 0.2 * (spec.recipe.lr > 1e-5) + random.Random(f"{set_in(spec.recipe)}{spec.seed}").gauss(0, 0.004)
    took = 1.0 if spec.train else 0.1
    done = draw_result(spec, p, lambda plan: f"{spec.seed}-{plan.split}", spec.protocol.knobs)
    return done.model_copy(update={"cpu_s": 40 * took, "gpu_s": 100 * took, "wall_s": 50 * took})


def test_what_a_run_costs_is_recorded_at_the_prices_of_the_day_and_told(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(GIVEN, "2")
    run = Paper(finish).start(task, tmp_path / "run")
    assert run.champion == "b1"
    done = bodies(run, "finished")
    assert {t.usd for t in done if t.trial == "b0-s1"} == {0.104}, "40 CPU-s at 0.36 and 100 GPU-s at 3.6 an hour"
    record = Record(run.folder, run.events())
    events = [e for e in run.events() if e.kind == "finished"]
    assert not [p for e in events for p in priced(record, e)]
    forged = events[0].body.model_copy(update={"usd": 0.0})
    assert list(priced(record, type("E", (), {"body": forged})()))  # type: ignore[arg-type]
    intended = {b.trial: b for b in bodies(run, "intended")}
    first = intended["base"]
    assert (first.reserve_gpu_s, first.reserve_usd) == (5.0, pytest.approx((2.5 * 0.36 + 5 * 3.6) / 3600))
    assert intended["b1-s1"].reserve_gpu_s == 100, "what the largest took"
    status(run.folder)
    told = " ".join(capsys.readouterr().out.split())
    total = sum(t.usd for t in done)
    assert f"{total:.2f} (3.6 USD a GPU-hour, 0.36 USD a CPU-hour, as of 2026-11-29)" in told and "of 100" in told
    assert "US dollars" in run.report().read_text(encoding="utf-8")
    from evotrainer.views import card
    from evotrainer.views.fold import load_view

    assert f"US dollars {total:.2f}" in "\n".join(card._evidence(load_view(run.folder), None, "", 0, "", ""))


def test_a_priced_run_that_was_killed_and_resumed_verifies_whole(
    task_file: Path, trained_base: Path, tmp_path: Path
) -> None:
    """Real trials: what each wrote knows no price, and its event has one."""
    folder = tmp_path / "run"
    prices = ["budget.price={cpu_hour = 3.6, as_of = 2026-11-29}", "budget.cpu_s=600", "budget.trial_cpu_s=60"]
    command = [sys.executable, "-m", "evotrainer", "run", str(task_file), "--out", str(folder), *TINY, *prices]
    environ = {**os.environ, "EVOTRAINER_KILL_AT": "after:b0-s1/finished"}
    killed = subprocess.run([*command, f"policy.base={trained_base}"], env=environ, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run = api.resume(folder)
    found = run.verify()
    assert not found.problems, found.problems[0]
    done = bodies(run, "finished")
    assert len(done) > 4 and all(t.usd == pytest.approx(t.cpu_s / 1000, abs=1e-5) for t in done)
    result = folder / "trials" / done[0].trial / "result.json"
    result.write_text(result.read_text().replace('"usd":null', '"usd":0.0'))
    assert any("result.json does not say" in p.message for p in run.verify().problems)


def test_the_search_weighs_cost_in_the_unit_of_the_budget(task: Path, tmp_path: Path) -> None:
    from tests.agents.briefings import briefing as some

    run = Paper(finish).start(task, tmp_path / "run")
    with Paper(finish).context(run) as ctx:
        told = propose.briefing(ctx, 1, run.state.readings["b0"])
        each = (40 * 0.36 + 100 * 3.6) / 3600
        assert (told.cost_unit, told.trial_cost, told.trial_cpu_s) == ("usd", pytest.approx(each), 40.0)
        assert reserves.trainings_left(ctx) == pytest.approx(told.budget_left["usd"] / each, rel=1e-6)
        assert "budget.usd=100" in reserves.over_budget(ctx, 1e6, 0)

    class Move:
        cost = 1.0

    poor = some(budget_left={"usd": 0.5, "cpu_s": 1e9}, trial_cost=1.0, cost_unit="usd")
    assert affordable([Move()], poor) == []  # type: ignore[list-item]
    assert affordable([Move()], poor.model_copy(update={"cost_unit": "cpu_s"}))  # type: ignore[list-item]


@pytest.mark.parametrize(("limit", "told"), [("gpu_s=1500", "GPU-seconds"), ("usd=0.5", "US dollars")])
def test_trials_that_run_are_stopped_where_the_budget_ends(limit: str, told: str, task: Path, tmp_path: Path) -> None:
    run = Paper(finish).start(task, tmp_path / "run")
    with Paper(finish).context(run) as ctx:
        ctx.task = load_task(task, [f"budget.{limit}"])
        spent = ctx.budget().spent
        beat = Heartbeat(pid=1, step=1, steps=2, phase="training", cpu_s=0.0, time=0.0, gpu_s=1000.0)
        spec = TrialSpec.model_construct(trial="b2-s1", branch="b2")
        with pytest.raises(BudgetError, match=f"the run used .*{told}.* of budget.{limit}; raise it to go on"):
            ctx._progress([(spec, beat)])
        assert spent["gpu_s"] > 500 and spent["usd"] > 0.5


def test_simulated_devices_are_counted_for_as_long_as_a_trial_holds_them(
    task_file: Path, tmp_path: Path, trained_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded trainer takes no GPU; an executor that gave it two has them held all the same."""
    loaded = load_task(task_file)
    spec = TrialSpec(
        run="run",
        trial="b1-s1",
        branch="b1",
        seed=1,
        purpose="audit",
        train=False,
        recipe=loaded.recipe,
        protocol=loaded.recipe,
        environment=loaded.environment,
        policy_dir=str(trained_base),
        evals=(EvalPlan(split="search", attempts=1, tasks=2),),
    )
    monkeypatch.setenv(GIVEN, "2")
    executor = LocalExecutor(tmp_path, 1, 0)
    (done,) = executor.run([spec])
    executor.close()
    assert done.gpu_s == pytest.approx(2 * done.wall_s, abs=0.1) and done.gpu_s > 0
    folder = executor.prepare(spec.model_copy(update={"trial": "b1-s2"}))
    beat = Heartbeat(pid=1, step=0, steps=0, phase="starting", cpu_s=1.0, time=0.0, gpu_s=50.0)
    write_atomic(folder / "heartbeat", beat.model_dump_json())
    assert 50.0 <= TrialProcess(folder).gpu_s() < 60, "what an attempt before a kill held is paid for as well"
    monkeypatch.delenv(GIVEN)
    assert gpus_held(False) == 0.0


def test_a_missing_price_is_refused_before_anything_is_spent(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(text: str) -> list[str]:
        task.write_text(text, encoding="utf-8")
        return check_run(BeforeRun(load_task(task), dry=True))

    for text, told in (
        (TASK.replace(PRICE, ""), "usd needs .budget.price. with gpu_hour or cpu_hour, and as_of"),
        (TASK.replace("as_of = 2026-11-29\n", ""), "as_of"),
        (TASK.replace("2026-11-29", '"last week"'), "as_of"),
        (TASK.replace("gpu_hour = 3.6", "gpu_hour = -1"), "gpu_hour"),
        (TASK.replace("cpu_hour = 0.36\n", ""), "trials hold no GPU here, and budget.price has no cpu_hour"),
    ):
        with pytest.raises(ConfigError, match=told):
            asked(text)
    assert any("gpu_s=5 limits nothing" in n for n in asked(TASK.replace("usd = 100", "gpu_s = 5")))
    monkeypatch.setenv(GIVEN, "1")
    with pytest.raises(ConfigError, match="each trial holds 1 GPU, and budget.price has no gpu_hour"):
        asked(TASK.replace("gpu_hour = 3.6\n", ""))
    kept = load_task(task).to_toml()
    task.write_text(TASK, encoding="utf-8")
    assert "as_of" in kept and load_task(task).budget.price == PriceConfig.model_validate(
        {"gpu_hour": 3.6, "cpu_hour": 0.36, "as_of": "2026-11-29"}
    )


def test_the_estimate_tells_gpu_hours_and_dollars(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GIVEN, "4")
    told = estimate(load_task(task, ["budget.usd=1"]), step_s=10.0)
    text = "\n".join(estimate_lines(told))
    assert told.gpus == 4 and "GPU-hours" in text and "US dollars" in text
    assert "prices: 3.6 USD a GPU-hour, 0.36 USD a CPU-hour, as of 2026-11-29" in text
    assert "budget.usd = 1 ends the search earlier" in text


def test_prices_that_are_old_say_how_old_and_those_of_tomorrow_are_refused(task: Path) -> None:
    today = datetime.now(UTC).date()

    def asked(age: int) -> tuple[list[str], str]:
        task.write_text(TASK.replace("2026-11-29", str(today - timedelta(days=age))), encoding="utf-8")
        loaded = load_task(task)
        notes = [n for n in check_run(BeforeRun(loaded, dry=True)) if "days old" in n]
        return notes, "\n".join(estimate_lines(estimate(loaded, step_s=1.0)))

    assert asked(30)[0] == [] and "days old" not in asked(30)[1]
    (note,), told = asked(45)
    assert f"45 days old (as of {today - timedelta(days=45)}): look them up again" in note and note in told
    with pytest.raises(ConfigError, match="lies in the future"):
        asked(-3)


def test_a_resume_with_more_money_or_other_prices_is_told_by_these(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(GIVEN, "2")
    paper = Paper(finish)
    with paper.stopped(lambda spec: spec.trial == "b0-s2"):
        paper.start(task, tmp_path / "run")
    run = paper.resume(tmp_path / "run", ["budget.usd=250", "budget.price.gpu_hour=7.2"])
    status(run.folder)
    told = " ".join(capsys.readouterr().out.split())
    assert "of 250" in told and "7.2 USD a GPU-hour" in told and "of 100" not in told
    cost = {t.trial: t.usd for t in bodies(run, "finished")}
    assert cost["b0-s1"] == 0.104 and cost["b1-s1"] == pytest.approx((40 * 0.36 + 100 * 7.2) / 3600, abs=1e-5)


@pytest.mark.parametrize(
    ("shown", "files", "n"),
    [
        (None, 4, 4),
        ("0,2", 4, 2),
        ("0, 1, 3", 8, 3),
        ("0,1,", 4, 2),
        ("1,-1,2", 4, 1),
        ("0,7", 2, 1),
        ("9", 2, 0),
        ("GPU-3f2a,GPU-77", 8, 2),
        ("", 4, 0),
        ("-1", 4, 0),
    ],
)
def test_devices_are_counted_as_cuda_counts_them(
    shown: str | None, files: int, n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(files):
        (tmp_path / f"nvidia{i}").touch()
    monkeypatch.setattr("evotrainer.executors.devices.FILES", str(tmp_path / "nvidia[0-9]*"))
    monkeypatch.setattr("evotrainer.executors.devices.gpu_visible", lambda: shown is None or shown not in ("", "-1"))
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert visible_gpus() == n


def test_dollars_of_trials_on_several_devices_end_a_run_at_its_limit(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four devices a trial: the estimate, the reservations, what is booked and the stop are of all four."""
    monkeypatch.setenv(GIVEN, "4")

    def held(spec: TrialSpec) -> TrialFinished:
        done = finish(spec)
        return done.model_copy(update={"gpu_s": 4 * done.wall_s})

    loaded = load_task(task, ["budget.usd=0.6"])
    assert estimate(loaded, step_s=1.0).gpus == 4
    task.write_text(loaded.to_toml(), encoding="utf-8")
    run = Paper(held).start(task, tmp_path / "run")
    done = bodies(run, "finished")
    each = (40 * 0.36 + 200 * 3.6) / 3600
    assert [t.usd for t in done if t.steps] == pytest.approx([each] * sum(bool(t.steps) for t in done), abs=1e-5)
    spent = sum(t.usd for t in done)
    assert spent <= 0.6 < spent + each, "the next training would not have fitted"
    assert run.closed is not None and run.closed.reason == "the budget holds no further branch"

"""Runs over a script: to the certificate, and on after a kill -9 of the script, its trial or the driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evotrainer import api
from evotrainer.cli import app
from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError, FaultsError
from evotrainer.executors.devices import GIVEN
from evotrainer.executors.spec import read_heartbeat
from evotrainer.studies.estimate import estimate, estimate_lines
from tests.small_run import TINY
from tests.trainers.command.test_kit import LINE, task

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.xdist_group("loop")
FEW = [
    *("run.rounds=0", "run.seeds=[1,2]", "judge.min_seeds=2", "run.certify_seeds=[101]", "run.health_every=2"),
    *("run.workers=1", "run.looks=off", "run.keys=off", "evaluation.draw=fixed", "evaluation.search_tasks=8"),
    *("evaluation.gate_tasks=8", "evaluation.cert_tasks=8", "evaluation.gate_attempts=2", "evaluation.cert_attempts=2"),
]
CHANGE = ["run.agent=fixed", 'run.agent_options={interventions=[{factor="lr", new=3e-3}]}']


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_script_of_plain_pytorch_is_trained_judged_and_certified(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["init", str(tmp_path / "mine"), "--trainer", "command"]).exit_code == 0
    assert "](" not in (tmp_path / "mine" / "README.md").read_text(), "no link that leads nowhere"
    run = api.start(
        tmp_path / "mine" / "task.toml",
        tmp_path / "run",
        overrides=[*TINY, "run.workers=2", "policy.warm_start.steps=60", "run.looks=off", "run.probes=0", *CHANGE],
    )
    assert run.closed is not None and not run.verify().problems
    trained = {e.body.trial: e.body for e in run.events() if e.kind == "finished" and e.body.steps}
    assert len(trained) >= 4 and all(t.status == "complete" and t.cached is None for t in trained.values())
    assert {"judged", "certified"} <= {e.kind for e in run.events()}
    first = trained["b0-s1"]
    assert first.curve[0]["loss"] == first.curve[0]["loss"] and first.cpu_s > first.curve[-1]["cpu_s"] > 1
    files = next(e.body.environment["files"] for e in run.events() if e.kind == "run")
    assert any(f.endswith("train.py") for f in files), "the script's hash is in the ledger"


def test_what_a_run_of_it_costs_is_told_before(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GIVEN, "1")
    price = ["budget.price={gpu_hour=3.6, as_of=2026-11-29}", "budget.gpu_s=1"]
    e = estimate(load_task(task(tmp_path, base, LINE), [*FEW, *price, "recipe.steps=200"]))
    assert e.cost.start_s > 10 * e.cost.step_s > 0, "what the script takes to start is in no step"
    assert e.gpus == 1 and e.cost.wall > 1, "it sleeps while it holds a GPU"
    told = "\n".join(estimate_lines(e))
    gpu_s = 2 * e.training_s * e.cost.wall
    assert f", {gpu_s / 3600:.2g} GPU-hours, {gpu_s / 1000:.2f} US dollars" in told and "likely: 2 trainings" in told
    assert "budget.gpu_s = 1 ends the search earlier" in told


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.timeout(900)
def test_after_kills_the_run_goes_on_and_nothing_is_left(base: Path, tmp_path: Path) -> None:
    run, trials = tmp_path / "run", tmp_path / "run" / "trials"
    command, env = [sys.executable, "-m", "evotrainer"], {**os.environ, "PYTHONPATH": str(ROOT)}
    with open(tmp_path / "said", "wb") as said:
        driver = subprocess.Popen(
            [*command, "run", str(task(tmp_path, base, LINE)), "--out", str(run), "--plain", *FEW],
            env=env, cwd=tmp_path, stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip
        script = until(lambda: at_step(trials / "b0-s1"), driver)
        os.kill(script, signal.SIGKILL)
        of_trial = until(lambda: at_step(trials / "b0-s2"), driver)
        done = (trials / "b0-s1" / "command" / "done.json").stat().st_mtime_ns
        beat = read_heartbeat(trials / "b0-s2")
        assert beat is not None and script != of_trial
        os.kill(beat.pid, signal.SIGKILL)
        until(lambda: of_trial not in script_pids(trials), driver)
        until(lambda: at_step(trials / "b0-s2"), driver)
        driver.kill()
        driver.wait()
    until(lambda: not script_pids(trials))
    resumed = subprocess.run([*command, "resume", str(run), "--plain"], env=env, cwd=tmp_path, capture_output=True)
    assert resumed.returncode == 0, resumed.stderr
    opened = api.open_run(run)
    results = {e.body.trial: e.body for e in opened.events() if e.kind == "finished"}
    assert {results[f"b0-s{n}"].status for n in (1, 2)} == {"complete"} and not opened.verify().problems
    assert opened.closed is not None and not script_pids(trials)
    assert (trials / "b0-s1" / "command" / "done.json").stat().st_mtime_ns == done, "trained once"
    assert "note: signal 9 ended the command, start 1" in (trials / "b0-s1" / "log.txt").read_text()
    for n in (1, 2):
        rows = (trials / f"b0-s{n}" / "command" / "out" / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(x)["step"] for x in rows] == [1, 2, 3]


@pytest.mark.timeout(900)
def test_what_made_a_training_fail_is_mended_by_a_resume(base: Path, tmp_path: Path) -> None:
    file, run = task(tmp_path, base, f"{LINE} --does hangs-3-s"), tmp_path / "run"
    wrong = ["trainer.options.patience_s=2", "trainer.options.policy=elsewhere", "trainer.options.grace_s=0.1"]
    with pytest.raises(FaultsError, match="hung, ended; .*raise trainer.options.patience_s"):
        api.start(file, run, overrides=[*FEW, *wrong])
    with pytest.raises(ConfigError, match="a resume cannot change 'trainer.options.seed'"):
        api.resume(run, ["trainer.options.seed=1"])
    mended = ["trainer.options.patience_s=600", "trainer.options.policy=policy"]
    done = api.resume(run, mended)
    assert done.closed is not None and not done.verify().problems
    with pytest.raises(ConfigError, match="a resume cannot change 'trainer.options.policy'"):
        api.resume(run, mended)


def at_step(trial: Path) -> int:
    """The process of a trial's script once it has made a step, else 0."""
    metrics = trial / "command" / "out" / "metrics.jsonl"
    return next(iter(script_pids(trial)), 0) if metrics.is_file() and metrics.stat().st_size else 0


def script_pids(trial: Path) -> list[int]:
    found = []
    for p in Path("/proc").glob("[0-9]*"):
        try:
            line = (p / "cmdline").read_bytes()
        except OSError:
            continue
        if b"own_script.py" in line and str(trial).encode() in line:
            found.append(int(p.name))
    return found


def until(so: Callable[[], Any], driver: subprocess.Popen[bytes] | None = None) -> Any:
    end = time.monotonic() + 240
    while not (found := so()):
        assert time.monotonic() < end and (driver is None or driver.poll() is None), "it takes too long"
        time.sleep(0.05)
    return found

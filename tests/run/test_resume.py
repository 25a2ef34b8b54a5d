"""`api.resume`: after a `kill -9` anywhere the run goes on, ends as it would have ended, and pays for nothing twice."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.base import base
from evotrainer.errors import AbortedError, ConfigError, IntegrityError, StoreError, TrainerError
from tests.paper import Paper
from tests.run.kill_driver import finish
from tests.small_run import SMALL, TINY

ROOT = Path(__file__).parents[2]
ALL = "EVOTRAINER_ALL_KILLS"


def command(args: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "evotrainer.cli", *args],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
    )


def processes_in(folder: Path) -> list[str]:
    """Command lines of live processes that work in a run folder."""
    out = []
    for p in Path("/proc").glob("[0-9]*"):
        try:
            line = (p / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            log = os.readlink(p / "fd" / "1")  # a forked trial has the command line of what forked it
        except OSError:
            continue
        if str(folder) in log and "evotrainer.executors" in line:
            out.append(line)
    return out


def gone(folder: Path, seconds: float = 20.0) -> bool:
    """True once no trial process of the run is left."""
    deadline = time.monotonic() + seconds
    while processes_in(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not processes_in(folder)


def outcome(run: api.Run) -> dict[str, object]:
    """What a run found, without what it cost."""
    policies = {e.body.trial: e.body.policy_sha256 for e in run.events() if e.kind == "finished"}
    scores = {e.body.trial: e.body.scores for e in run.events() if e.kind == "finished"}
    cert = run.certification
    verdicts = [v.model_dump() for v in run.verdicts]
    return {"policies": policies, "scores": scores, "cert": cert and cert.model_dump(), "verdicts": verdicts}


def one_per_kind(points: list[str]) -> list[str]:
    """The points to die at: all of the driver's, and each kind of a trial's once (step numbers and trials merged)."""
    seen: set[str] = set()
    out = []
    for p in points:
        kind = re.sub(r"\d+", "#", p)
        if kind not in seen:
            seen.add(kind)
            out.append(p)
    return out


def some(points: list[str], every: int) -> list[str]:
    """Each `every`th of them; all of them for `python -m bench.slow`, which sets ALL."""
    return points if os.environ.get(ALL) else points[::every]


def driver(folder: Path, task: Path, overrides: list[str], kill_at: str) -> int:
    """Drive a run with trials on paper to its end, through all kills; returns how many there were."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.run.kill_driver", str(folder), str(task), *overrides],
        cwd=ROOT,
        env={**os.environ, "EVOTRAINER_KILL_AT": kill_at},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return int(done.stdout.split()[-1])


@pytest.mark.xdist_group("kills")
def test_a_driver_killed_at_named_steps_ends_like_an_uninterrupted_one(
    task_file: Path, trained_base: Path, tmp_path: Path
) -> None:
    """Trials on paper: what is killed here is what decides and records."""
    changes = "[{factor = 'group_size', new = 12}, {factor = 'lr', new = 1e-4}]"
    overrides = [*TINY, f"policy.base={trained_base}", "run.rounds=2", "run.agent=fixed"]
    overrides += [f"run.agent_options.interventions={changes}", "judge.max_seeds=4"]
    listed, todo = tmp_path / "points", tmp_path / "todo"
    # The run's name goes into the rollouts' ids: both runs are called the same.
    whole, killed = tmp_path / "whole" / "r", tmp_path / "killed" / "r"
    assert driver(whole, task_file, overrides, f"list:{listed}") == 0
    points = one_per_kind(listed.read_text().split("\n")[:-1])
    assert len(points) > 80, points
    points = some(points, 9)
    todo.write_text("".join(f"{p}\n" for p in points))
    assert driver(killed, task_file, overrides, f"once:{todo}") == len(points)
    assert todo.read_text() == "", f"never reached: {todo.read_text().split()}"
    assert outcome(api.Run(killed)) == outcome(api.Run(whole))
    assert api.Run(killed).champion == "b1" and len(api.Run(killed).verdicts) >= 2
    intended = [e.body.trial for e in api.Run(killed).events() if e.kind == "intended"]
    assert len(intended) == len(set(intended)), "a trial was paid for twice"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("kills")
def test_a_trial_killed_at_named_steps_ends_like_an_uninterrupted_one(
    task_file: Path, trained_base: Path, tmp_path: Path
) -> None:
    args = [str(task_file), f"policy.base={trained_base}", *TINY, "run.rounds=0", "run.workers=1", "run.restarts=99"]
    args.append("evaluation.draw=5")  # both are evaluated on the same tasks
    listed = tmp_path / "points"
    whole = tmp_path / "whole" / "r"
    done = command(["run", *args, "--out", str(whole)], {"EVOTRAINER_KILL_AT": f"list:{listed}"})
    assert done.returncode == 0, done.stderr
    reached = listed.read_text().split("\n")[:-1]
    points = [p for p in one_per_kind(reached) if p.startswith(("trial:", "store:"))]
    assert len(points) >= 12, points
    points = some(points, 4)
    points.append(next(p for p in reached if p.endswith("b0-s1/intended")))  # and the driver, while a trial begins

    todo = tmp_path / "todo"
    todo.write_text("".join(f"{p}\n" for p in points))
    killed = tmp_path / "killed" / "r"
    env = {"EVOTRAINER_KILL_AT": f"once:{todo}"}
    done = command(["run", *args, "--out", str(killed)], env)
    kills = 0
    while done.returncode != 0:
        assert done.returncode == -signal.SIGKILL, done.stderr + done.stdout
        kills += 1
        assert kills < 2 * len(points)
        assert gone(killed), "a trial outlived its driver"
        done = command(["resume", str(killed)], env)
    assert todo.read_text() == "", f"never reached: {todo.read_text().split()}"
    assert outcome(api.Run(killed)) == outcome(api.Run(whole))
    assert api.Run(killed).verify().ok
    intended = [e.body.trial for e in api.Run(killed).events() if e.kind == "intended"]
    assert len(intended) == len(set(intended)), "a trial was paid for twice"


@pytest.mark.xdist_group("loop")
def test_a_driver_killed_in_mid_training_leaves_no_orphan(task_file: Path, trained_base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    p = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "evotrainer.cli",
            "run",
            str(task_file),
            f"policy.base={trained_base}",
            *SMALL,
            "recipe.steps=400",
            "--out",
            str(folder),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while not list(folder.glob("trials/b0-s*/checkpoint*")) and time.monotonic() < deadline and p.poll() is None:
            time.sleep(0.05)
        assert processes_in(folder), "no trial was running"
    finally:
        p.send_signal(signal.SIGKILL)
        p.wait()
    assert gone(folder), f"orphans: {processes_in(folder)}"


@pytest.mark.xdist_group("loop")
def test_a_full_disk_loses_nothing_and_a_resume_goes_on(task_file: Path, tmp_path: Path) -> None:
    """A limit on file sizes stands for a disk that fills up while a trial writes its checkpoint."""
    large = tmp_path / "large"  # larger than anything else that a run writes
    base(task_file, ["policy.warm_start.steps=1"], out=large)
    size = (large / "model.safetensors").stat().st_size
    args = ["-m", "evotrainer.cli", "run", str(task_file), f"policy.base={large}", *TINY, "run.rounds=0"]
    small = f"ulimit -f {size * 2 // 1024}; exec {sys.executable} {shlex.join([*args, '--out', str(tmp_path / 'r')])}"
    done = subprocess.run(["bash", "-c", small], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == StoreError.exit_code, done.stderr + done.stdout
    assert "checkpoint" in done.stderr.strip().splitlines()[-1]
    assert "free space" in done.stderr.strip().splitlines()[-1]
    assert gone(tmp_path / "r")
    assert not [e for e in api.Run(tmp_path / "r").events() if e.kind == "finished" and e.body.status == "failed"]
    run = api.resume(tmp_path / "r")
    assert run.certification is not None
    assert run.verify().ok


@pytest.mark.xdist_group("loop")
def test_an_overrun_is_mended_by_a_larger_budget(task_file: Path, trained_base: Path, tmp_path: Path) -> None:
    overrides = [*TINY, f"policy.base={trained_base}", "run.rounds=0", "budget.trial_cpu_s=0.02"]
    with pytest.raises(TrainerError, match=r"raise budget\.trial_cpu_s .*evotrainer resume"):
        api.start(task_file, tmp_path / "r", overrides)
    run = api.resume(tmp_path / "r", ["budget.trial_cpu_s=60"])
    assert run.certification is not None
    api.resume(tmp_path / "r")


@pytest.mark.xdist_group("loop")
def test_a_run_does_not_go_on_over_changed_rewards(task_file: Path, trained_base: Path, tmp_path: Path) -> None:
    own = tmp_path / "task"
    shutil.copytree(task_file.parent, own)
    overrides = [*TINY, f"policy.base={trained_base}", "run.autonomy=human_gated"]
    with pytest.raises(AbortedError):
        api.start(own / "task.toml", tmp_path / "r", overrides, ask=lambda where, text: ("ABORT", ""))
    module = own / "environment.py"
    module.write_text(module.read_text().replace("completion.strip() ==", "completion.strip() !="))
    with pytest.raises(IntegrityError, match=r"environment\.py was changed after the run began, and trainings rest"):
        api.resume(tmp_path / "r", ask=lambda where, text: ("ABORT", ""))


@pytest.mark.xdist_group("loop")
def test_interrupting_a_run_says_how_to_go_on(task_file: Path, trained_base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    args = ["run", str(task_file), f"policy.base={trained_base}", *SMALL, "recipe.steps=400", "--out", str(folder)]
    p = subprocess.Popen(
        [sys.executable, "-m", "evotrainer.cli", *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not processes_in(folder) and time.monotonic() < deadline and p.poll() is None:
        time.sleep(0.05)
    p.send_signal(signal.SIGINT)
    _, said = p.communicate()
    assert p.returncode == 130
    assert said.strip().splitlines() == [f"evotrainer: interrupted; nothing is lost: evotrainer resume {folder}"]
    assert gone(folder)


@pytest.mark.xdist_group("loop")
def test_a_closed_run_is_returned_as_it_is(finished: api.Run) -> None:
    before = len(finished.events())
    api.resume(finished.folder)
    assert len(finished.events()) == before


@pytest.mark.xdist_group("loop")
def test_a_resume_cannot_change_what_is_being_found_out(finished: api.Run) -> None:
    with pytest.raises(ConfigError, match="a resume cannot change 'recipe.lr'"):
        api.resume(finished.folder, ["recipe.lr=1"])


@pytest.mark.xdist_group("loop")
def test_a_second_run_does_not_overwrite_the_first(finished: api.Run, task_file: Path) -> None:
    with pytest.raises(ConfigError, match="holds a run already"):
        api.start(task_file, finished.folder, SMALL)


@pytest.mark.xdist_group("loop")
def test_a_human_can_send_back_abort_and_go_on(task_file: Path, trained_base: Path, tmp_path: Path) -> None:
    quick = Paper(finish)
    overrides = [*TINY, f"policy.base={trained_base}", "run.autonomy=human_gated"]
    asked: list[str] = []

    def ask(where: str, text: str) -> tuple[str, str]:
        asked.append(where)
        if asked.count("intervention") == 1 and where == "intervention":
            return "REVISE", "not the reward"
        return ("ABORT", "") if where == "backtest" else ("APPROVE", "")

    with pytest.raises(AbortedError, match="aborted at the backtest gate"):
        quick.start(task_file, tmp_path / "r", overrides, ask=ask)
    assert asked == ["diagnosis", "intervention", "intervention", "backtest"]
    run = quick.resume(tmp_path / "r", ask=lambda where, text: ("APPROVE", ""))
    gates = [(e.body.where, e.body.answer, e.body.feedback) for e in run.events() if e.kind == "gate"]
    assert gates[:5] == [
        ("diagnosis", "APPROVE", ""),
        ("intervention", "REVISE", "not the reward"),
        ("intervention", "APPROVE", ""),
        ("backtest", "ABORT", ""),
        ("backtest", "APPROVE", ""),
    ]
    assert run.closed is not None
    assert len([e for e in run.events() if e.kind == "proposed"]) == 2

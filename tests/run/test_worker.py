"""The process of a trial: what it costs is counted, whoever spends it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evotrainer.executors import local
from evotrainer.executors.local import LocalExecutor, Running
from evotrainer.executors.process import ProcessCpuClock, descendants_cpu_s
from evotrainer.executors.scores import split_score
from evotrainer.executors.spec import TrialSpec, trial_dir
from evotrainer.records.rollout import Rollout, Turn

BURN = "import time\nt = time.process_time()\nwhile time.process_time() - t < 0.4: pass\n"


def test_cpu_of_live_descendants_is_counted_and_never_taken_back() -> None:
    clock = ProcessCpuClock(earlier=5.0)
    nested = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}]); print(flush=True); sys.stdin.read()"
    )
    p = subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert p.stdout is not None
    p.stdout.readline()
    assert descendants_cpu_s(os.getpid()) >= 0.35, "a grandchild that its parent reaped is in the sum"
    during = clock.cpu_s()
    assert during >= 5.35
    p.communicate()
    time.sleep(0.01)
    assert clock.cpu_s() >= during


def rollout(task: str, outcome: str, error: str | None = None) -> Rollout:
    return Rollout(
        id=f"{task}{outcome}{error}",
        task=task,
        turns=(Turn("assistant", "x"),),
        reward=None,
        components={"right": None if error else float(outcome == "correct")},
        outcome=outcome,  # type: ignore[arg-type]
        error_kind=error,
    )


def test_infrastructure_faults_are_in_no_mean() -> None:
    rs = [
        rollout("a", "correct"),
        rollout("a", "unknown", "sandbox"),
        rollout("b", "incorrect"),
        rollout("b", "correct"),
    ]
    s = split_score(rs, "gate", 3, 2)
    assert s.per_task == {"a": 1.0, "b": 0.5}
    assert s.score == 0.75
    assert s.errors == 1
    assert s.components["right"] == 2 / 3


def started(tmp_path: Path, code: str) -> Running:
    """A process that has announced itself, watched as a trial."""
    spec = TrialSpec.model_construct(trial="t", branch="b0", seed=1, cpu_limit_s=None)
    folder = trial_dir(tmp_path, "t")
    folder.mkdir(parents=True)
    command = [sys.executable, "-c", f"print(flush=True)\n{code}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    return Running(spec, folder, process, time.monotonic())


@pytest.mark.parametrize(("code", "hung"), [("import time; time.sleep(600)", True), ("while True: pass", False)])
def test_a_silent_trial_is_hung_only_if_it_does_no_work(
    code: str, hung: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "STALE_S", 0.5)
    executor, r = LocalExecutor(tmp_path, 1), started(tmp_path, code)
    try:
        time.sleep(0.6)
        executor.overdue(r)  # from here on its work is counted
        began = time.monotonic()
        while not hung and descendants_cpu_s(r.process.pid, itself=True) - r.seen_cpu_s < 0.1:
            time.sleep(0.02)  # on a loaded machine it may have to wait for its turn
        time.sleep(max(0.0, 0.6 - (time.monotonic() - began)))
        assert executor.overdue(r) is hung
    finally:
        r.process.kill()
        r.process.communicate()

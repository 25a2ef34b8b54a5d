"""The process of a trial: what it costs is counted, whoever spends it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from evotrainer.executors.worker import Clock, descendants_cpu_s, split_score
from evotrainer.records.rollout import Rollout, Turn

BURN = "import time\nt = time.process_time()\nwhile time.process_time() - t < 0.4: pass\n"


def test_cpu_of_live_descendants_is_counted_and_never_taken_back() -> None:
    clock = Clock(earlier=5.0)
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

"""`executors.forkserver`: forked trials are trials like others, and nothing outlives the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evotrainer.executors.forkserver import LOST, ForkServer, can_fork
from evotrainer.executors.local import LocalExecutor, end
from evotrainer.executors.spec import TrialSpec, trial_dir
from evotrainer.records.events import TrialFinished
from tests.thinned import thinned

Make = Callable[..., TrialSpec]
LIMITS = {"OMP_NUM_THREADS": "1"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="trials are forked on Linux only")


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(tmp_path / "r", 1)
    yield made
    made.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int, within_s: float = 10.0) -> bool:
    until = time.monotonic() + within_s
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)


def told(r: TrialFinished) -> dict[str, Any]:
    """What a result says, without what it cost."""
    out = r.model_dump(exclude={"cpu_s", "wall_s", "peak_rss_mb"})
    out["curve"] = [{k: v for k, v in row.items() if not k.startswith("cpu_")} for row in r.curve]
    return out


def only(executor: LocalExecutor) -> ForkServer:
    (forkserver,) = executor.forkservers.values()
    return forkserver


def test_forked_trials_end_as_started_ones(make_spec: Make, executor: LocalExecutor, tmp_path: Path) -> None:
    specs = [make_spec(seed=s, health_every=2) for s in (1, 2)]
    forked = list(executor.run(specs))
    forkserver = only(executor)
    (started,) = LocalExecutor(tmp_path / "other" / "r", 1, fork=False).run(specs[1:])
    assert told(forked[1]) == told(started)
    assert all(r.status == "complete" and r.cpu_s > 0 for r in forked)
    assert forked[1].cpu_s < started.cpu_s, "it did not import PyTorch"
    threads = Path(f"/proc/{forkserver.process.pid}/task")
    assert len(list(threads.iterdir())) == 1, "a fork of several threads may find a lock that nobody opens"
    executor.close()
    assert not forkserver.alive and gone(forkserver.process.pid)


@pytest.mark.parametrize(
    "environment",
    thinned(
        [
            {"name": "code", "train": 40, "search": 10},
            {"name": "math", "train": 40, "search": 10},
            {"name": "swe", "train": 20, "search": 10},
        ],
        3,
    ),
    ids=lambda e: e["name"],
)
def test_the_fork_server_holds_train_and_search_and_no_thread(environment: dict[str, Any]) -> None:
    code = (
        "import json, os, sys\n"
        "from evotrainer.executors.forkserver import prepare\n"
        "prepare('embedded', json.loads(sys.argv[1]))\n"
        "assert len(os.listdir('/proc/self/task')) == 1, os.listdir('/proc/self/task')\n"
        "assert not open(f'/proc/{os.getpid()}/task/{os.getpid()}/children').read(), 'it has started a process'\n"
        "assert 'torch' in sys.modules\n"
        "from evotrainer.envs.swe.env import make_split as a\n"
        "from evotrainer.envs.code.tasks import make_split as b\n"
        "from evotrainer.envs.maths.source import _fixed as c\n"
        "print(sum(f.cache_info().currsize for f in (a, b, c)))\n"
    )
    command = [sys.executable, "-c", code, json.dumps(environment)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **LIMITS})
    assert done.stdout == "2\n", done.stderr


def test_what_cannot_be_forked_is_started(make_spec: Make) -> None:
    assert can_fork(make_spec())
    assert not can_fork(make_spec(trainer="trl"))


def test_a_trial_that_raises_leaves_its_traceback(make_spec: Make, executor: LocalExecutor, tmp_path: Path) -> None:
    spec = make_spec(environment={"name": f"python:{tmp_path / 'broken.py'}:environment"})
    (tmp_path / "broken.py").write_text(
        "from evotrainer.envs.simple import TextEnv\n\n\n"
        "class Broken(TextEnv):\n"
        "    def tasks(self, split):\n        raise KeyError('a key of mine')\n\n\n"
        "def environment():\n    name = 'right_letters'\n"
        "    return Broken('broken', {}, {name: lambda task, text: 1.0}, name)\n"
    )
    (r,) = executor.run([spec])
    assert (r.status, r.error) == ("failed", "KeyError: 'a key of mine'")
    log = (trial_dir(executor.run_dir, spec.trial) / "log.txt").read_text()
    assert "Traceback" in log and "broken.py" in log
    assert len(list(executor.run([make_spec(seed=2)]))) == 1, "the fork server goes on"


def wait_for(path: Path) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["trial", "forkserver"])
def test_what_is_killed_is_started_again_and_ends_the_same(
    victim: str, make_spec: Make, executor: LocalExecutor, tmp_path: Path
) -> None:
    spec = make_spec(steps=60, every=1)
    killed: list[int] = []

    def kill_once(running: list[Any]) -> None:
        beat = running[0][1] if running else None
        if beat is not None and beat.step >= 3 and not killed:
            killed.append(beat.pid if victim == "trial" else only(executor).process.pid)
            os.kill(killed[0], signal.SIGKILL)

    (r,) = executor.run([spec], kill_once)
    assert killed and gone(killed[0])
    (whole,) = LocalExecutor(tmp_path / "other" / "r", 1, fork=False).run([spec])
    assert r.resumed and not whole.resumed
    assert told(r) == told(whole) | {"resumed": 1}


def test_a_killed_group_is_waited_for(make_spec: Make, executor: LocalExecutor) -> None:
    r = executor.start(make_spec(steps=500))
    wait_for(r.folder / "heartbeat")
    r.process.poll()
    pid = r.process.pid
    assert pid and alive(pid) and os.getpgid(pid) == pid
    end(r.process)
    assert not alive(pid) and r.process.returncode == LOST
    again = executor.start(make_spec(seed=3, steps=500))
    end(again.process)  # perhaps before it was forked
    assert again.process.returncode == LOST


def test_nothing_outlives_a_killed_driver(make_spec: Make, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(make_spec(steps=500).model_dump_json())
    driver = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from evotrainer.executors.local import LocalExecutor\n"
        "from evotrainer.executors.spec import TrialSpec\n"
        "spec = TrialSpec.model_validate_json(Path(sys.argv[1]).read_text())\n"
        "e = LocalExecutor(Path(sys.argv[2]), 1)\n"
        "r = e.start(spec)\n"
        "while not r.process.pid: r.process.poll()\n"
        "print(r.process.pid, r.process.forkserver.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", driver, str(tmp_path / "spec.json"), str(tmp_path / "r")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None
        trial, forkserver = map(int, p.stdout.readline().split())
        assert alive(trial) and alive(forkserver)
        p.kill()
    assert gone(forkserver) and gone(trial)


def test_other_variables_make_another_fork_server(
    make_spec: Make, executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = executor.forkserver(make_spec(), LIMITS)
    assert executor.forkserver(make_spec(seed=2), LIMITS) is first
    monkeypatch.setenv("EVOTRAINER_KILL_AT", "nowhere")
    assert executor.forkserver(make_spec(), LIMITS) is not first

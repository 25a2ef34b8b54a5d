"""`executors.local`: a trial that ended without a word, and a silent one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from evotrainer.errors import StoreError
from evotrainer.executors import local
from evotrainer.executors.local import LocalExecutor, Running
from evotrainer.executors.process import descendants_cpu_s
from evotrainer.executors.spec import Heartbeat, TrialSpec, trial_dir
from evotrainer.records import clock
from evotrainer.records.keys import USER_CODE


def worker(folder: Path, **streams: object) -> int:
    command = [sys.executable, "-m", "evotrainer.executors.worker", str(folder)]
    return subprocess.run(command, env=dict(os.environ, PYTHONUNBUFFERED="1"), **streams).returncode  # type: ignore[call-overload]


def test_a_full_log_does_not_change_what_a_trial_ends_with(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        assert worker(tmp_path, stdout=full, stderr=full) == StoreError.exit_code, "there is no spec.json"
    told = (tmp_path / "error").read_text(encoding="utf-8")
    assert "spec.json is missing" in told and "Error" not in told, "no name of a class"


def ended(tmp_path: Path, code: int) -> Running:
    """A trial's process that ended without a word."""
    folder = trial_dir(tmp_path, "t")
    folder.mkdir(parents=True)
    process = subprocess.Popen([sys.executable, "-c", f"import os; os._exit({code})"])
    process.wait()
    spec = TrialSpec.model_construct(trial="t", branch="b0", seed=1, cpu_limit_s=None)
    return Running(spec, folder, process, time.monotonic())


def test_an_end_without_a_word_is_laid_to_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    r = ended(tmp_path, 1)
    assert LocalExecutor(tmp_path, 1).collect(r).status == "failed", "there is room"
    (r.folder / "result.json").unlink()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(local.shutil, "disk_usage", lambda _: usage._replace(free=4096))
    with pytest.raises(
        StoreError, match=r"trial t ended \(exit code 1\) while the disk is full \(4 KB free\); free some"
    ):
        LocalExecutor(tmp_path, 1).collect(r)
    assert not (r.folder / "result.json").exists()


BURN = "import time\nt = time.process_time()\nwhile time.process_time() - t < 0.4: pass\n"


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


class Asleep:
    """A process that lives and does nothing."""

    pid, returncode = 0, None

    def poll(self) -> int | None:
        return None

    def wait(self, timeout: float | None = None) -> int:
        return 0


@pytest.mark.parametrize("phase", ["training", f"{USER_CODE}in a reward function"])
@pytest.mark.parametrize("jump_s", [-1e9, 86_400.0])
def test_the_wall_clock_is_set_and_no_trial_ends(
    jump_s: float, phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a heartbeat says of the time is for people: silence is what this process heard."""
    executor, r = LocalExecutor(tmp_path, 1), watched(tmp_path)
    now = [r.silence.checked_at]
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: now[0], clock_gettime=time.clock_gettime))
    for step in range(5):
        beat(r.folder, step, phase, at=1.7e9 + (jump_s if step > 1 else 0.0))
        for _ in range(60):
            now[0] += 1.0
            assert not executor.overdue(r)
    last = now[0]
    while not executor.overdue(r):
        now[0] += 8.0
    assert 530 < now[0] - last < 560, "ten silent minutes are too many, whatever o'clock it was"


def test_a_driver_that_was_stopped_or_slept_ends_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor, r = LocalExecutor(tmp_path, 1), watched(tmp_path)
    now = [r.silence.checked_at]
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: now[0], clock_gettime=time.clock_gettime))
    beat(r.folder, 1, "training")
    for _ in range(20):
        now[0] += 36_000.0  # the lid was closed, and some kernels count that
        assert not executor.overdue(r)


def test_the_last_words_of_an_earlier_attempt_do_not_end_the_next(tmp_path: Path) -> None:
    """It was killed in a function that did not return, long ago; the next one has not spoken yet."""
    executor, r = LocalExecutor(tmp_path, 1), watched(tmp_path)
    beat(r.folder, 3, f"{USER_CODE}in a reward function", at=1.0)
    assert not executor.overdue(r)


def watched(tmp_path: Path) -> Running:
    spec = TrialSpec.model_construct(trial="t", branch="b0", seed=1, cpu_limit_s=None)
    (folder := trial_dir(tmp_path, "t")).mkdir(parents=True)
    return Running(spec, folder, Asleep(), 0.0)


def beat(folder: Path, step: int, phase: str, at: float = 1.7e9) -> None:
    h = Heartbeat(pid=1, step=step, steps=9, phase=phase, cpu_s=float(step), time=at)
    (folder / "heartbeat").write_text(h.model_dump_json())


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


class Scripted:
    """A process that is polled as the test says, then has ended."""

    pid = 0

    def __init__(self, *codes: int | None) -> None:
        self.codes = list(codes)

    def poll(self) -> int | None:
        return self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]

    def wait(self, timeout: float | None = None) -> int:
        return 0


def test_what_the_system_ended_begins_again_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "POLL_S", 0.0)
    executor = LocalExecutor(tmp_path, 2)
    side: list[int] = []
    plays = {"a": [Scripted(None, None, -9), Scripted(0)], "b": [Scripted(*[None] * 9, 0)], "c": [Scripted(0)]}

    def start(spec: TrialSpec, restarts: int = 0) -> Running:
        (folder := trial_dir(tmp_path, spec.trial)).mkdir(parents=True, exist_ok=True)
        return Running(spec, folder, plays[spec.trial].pop(0), 0.0, restarts)  # type: ignore[arg-type]

    monkeypatch.setattr(executor, "start", start)
    monkeypatch.setattr(executor, "overdue", lambda r: False)
    monkeypatch.setattr(executor, "collect", lambda r: (r.spec.trial, r.restarts))
    specs = [TrialSpec.model_construct(trial=t, branch="b0", seed=1) for t in "abc"]
    done = list(executor.run(specs, lambda beats: side.append(len(beats))))
    assert done == [("b", 0), ("a", 1), ("c", 0)], "a waits until b has ended"
    assert side[0] == 2 and set(side[side.index(1) :]) <= {0, 1}, "one at a time from then on"

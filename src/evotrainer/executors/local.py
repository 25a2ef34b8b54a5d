"""Trials side by side on this machine: one supervised process group each, one thread each."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from evotrainer.errors import AbortedError, BudgetError, FaultsError, SandboxError, StoreError
from evotrainer.executors.data_keys import WITH_KEY, passed_key
from evotrainer.executors.forkserver import Forked, ForkServer, can_fork, kind_of
from evotrainer.executors.process import EXIT_BUSY, Silence, descendants_cpu_s
from evotrainer.executors.spec import Heartbeat, TrialSpec, read_heartbeat, store_dirs, trial_dir, write_atomic
from evotrainer.records.durable import os_errors, sha256_tree
from evotrainer.records.events import FailureLabel, TrialFinished
from evotrainer.records.keys import USER_CODE
from evotrainer.records.reading import LOCK
from evotrainer.records.regular_file import open_regular, read_text
from evotrainer.records.text import cut

POLL_S = 0.1
STALE_S = 600.0
"""A trial without a heartbeat for this long that hardly uses the processor is stopped as hung."""
BUSY_SHARE = 0.05
"""Share of one core above which a trial without a heartbeat counts as working."""

FULL_BYTES = 512 << 10
"""Free space below which an unexplained end of a trial is blamed on the disk: a trial's small files need this much."""
LOG_END = 64 << 10
"""Bytes at a log's end in which its last error is looked for."""


class WatchedProcess(Protocol):
    """A trial's process: a `subprocess.Popen` or a fork of the fork server."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


@dataclass(slots=True)
class Running:
    spec: TrialSpec
    folder: Path
    process: WatchedProcess
    since: float
    restarts: int = 0
    silence: Silence = field(default_factory=Silence)
    """Since its heartbeat last changed."""
    seen_s: float = 0.0
    seen_cpu_s: float = 0.0
    """How silent it was when its work was last measured, and the CPU-seconds its processes had used by then."""


class LocalExecutor:
    """Runs trial specs with at most `workers` processes at once.

    A trial that fails by its own fault gives a `failed` result. A fault of the machine (store, sandbox, interruption)
    ends the whole call with the error: nothing is recorded as failed, and a resume goes on with the same trials.
    `fork`: trials begin as forks of a process that has imported what they need, where they can.
    """

    def __init__(self, run_dir: Path, workers: int, restarts: int = 2, *, fork: bool = True) -> None:
        self.run_dir = run_dir
        self.workers = max(1, workers)
        self.restarts = restarts
        self.fork = fork
        self.forkservers: dict[str, ForkServer] = {}

    def prepare(self, spec: TrialSpec, *, durable: bool = True) -> Path:
        """Write the trial's folder; a checkpoint that is there already is continued, under the limits of today.

        Not `durable`: the process that starts the trial prepares it again.
        """
        folder = trial_dir(self.run_dir, spec.trial)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise StoreError(f"cannot make {folder}: {e.strerror}; free space or fix permissions, then resume") from e
        write_atomic(folder / "spec.json", spec.model_dump_json(indent=1), durable=durable)
        return folder

    def close(self) -> None:
        """End the process that forks trials; no trial outlives `run`."""
        for forkserver in self.forkservers.values():
            forkserver.close()
        self.forkservers.clear()

    def forget(self, trial: str) -> None:
        """Take back the result of a failed trial that nothing recorded, so that a resume tries it again."""
        (trial_dir(self.run_dir, trial) / "result.json").unlink(missing_ok=True)

    def was_killed(self, r: Running) -> bool:
        """True where a signal ended the process (the machine's doing, not the trial's)."""
        return (r.process.poll() or 0) < 0

    def start(
        self, spec: TrialSpec, restarts: int = 0, *, threads: int = 1, env: Mapping[str, str] | None = None
    ) -> Running:
        """Start a trial's process. `threads`: of its arithmetic; `env`: variables for it alone."""
        folder = self.prepare(spec)
        limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), str(threads))
        limits["PYTHONUNBUFFERED"] = "1"
        process: WatchedProcess
        if self.fork and threads == 1 and env is None and can_fork(spec):
            with os_errors(f"cannot open {folder / 'log.txt'}"), open(folder / "log.txt", "ab") as log:
                process = self.forkserver(spec, limits).fork(folder, log, passed_key(spec))
            return Running(spec, folder, process, time.monotonic(), restarts)
        env = {**os.environ, **limits, **(env or {})}
        with os_errors(f"cannot open {folder / 'log.txt'}"), open(folder / "log.txt", "ab") as log:
            command = [sys.executable, "-m", "evotrainer.executors.worker", str(folder), str(os.getpid())]
            process = subprocess.Popen(
                [*command, WITH_KEY] if (key := passed_key(spec)) else command,
                stdin=subprocess.PIPE if key else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )
            if key and process.stdin is not None:
                with contextlib.suppress(BrokenPipeError), process.stdin as to:
                    to.write(key)
        return Running(spec, folder, process, time.monotonic(), restarts)

    def forkserver(self, spec: TrialSpec, limits: Mapping[str, str]) -> ForkServer:
        """The process that forks trials of this kind."""
        kind = kind_of(spec)
        if kind not in self.forkservers or not self.forkservers[kind].alive:
            self.forkservers[kind] = ForkServer(spec, limits)
        return self.forkservers[kind]

    def run(
        self,
        specs: Sequence[TrialSpec],
        on_progress: Callable[[list[tuple[TrialSpec, Heartbeat | None]]], None] = lambda _: None,
    ) -> Iterator[TrialFinished]:
        """Yield results as they come, finished ones first without running them again."""
        waiting: list[tuple[TrialSpec, int]] = []
        for spec in specs:
            if (done := self.result(spec)) is not None:
                yield done
            else:
                waiting.append((spec, 0))
        running: list[Running] = []
        try:
            while waiting or running:
                while waiting and len(running) < self.workers:
                    running.append(self.start(*waiting.pop(0)))
                for r in [r for r in running if r.process.poll() is not None or self.overdue(r)]:
                    running.remove(r)
                    if self.was_killed(r) and r.restarts < self.restarts:
                        waiting.insert(0, (r.spec, r.restarts + 1))
                        # most likely the system, for want of memory: fewer side by side from now on
                        self.workers = max(1, min(self.workers, len(running)))
                    else:
                        yield self.collect(r)
                on_progress([(r.spec, read_heartbeat(r.folder)) for r in running])
                if running and all(r.process.poll() is None for r in running):
                    time.sleep(POLL_S)
        finally:
            for r in running:
                end(r.process)

    def result(self, spec: TrialSpec) -> TrialFinished | None:
        """The recorded result of a finished trial."""
        p = trial_dir(self.run_dir, spec.trial) / "result.json"
        if not p.is_file():
            return None
        try:
            return TrialFinished.model_validate_json(read_text(p))
        except ValueError:
            raise StoreError(f"{p} is damaged; delete it and resume: the trial goes on from its checkpoint") from None

    def overdue(self, r: Running) -> bool:
        """True once a trial hangs (for STALE_S neither a heartbeat nor work done) or passed its CPU limit."""
        h = read_heartbeat(r.folder)
        if self.over_limit(r, h):
            return True
        silent_s = r.silence.look(h)
        if h is not None and h.phase.startswith(USER_CODE) and silent_s > STALE_S:
            return True  # one call of a function, however busy it is
        r.seen_s = min(r.seen_s, silent_s)
        if silent_s - r.seen_s <= STALE_S:
            return False
        cpu_s = (
            descendants_cpu_s(r.process.pid, itself=True) if r.process.pid else 0.0
        )  # a long evaluation is silent, and at work
        busy = cpu_s - r.seen_cpu_s > STALE_S * BUSY_SHARE
        r.seen_s, r.seen_cpu_s = silent_s, cpu_s
        return not busy

    def over_limit(self, r: Running, h: Heartbeat | None) -> bool:
        """True where a trial used half as much again as its CPU limit, between two steps."""
        limit = r.spec.cpu_limit_s
        return limit is not None and h is not None and h.cpu_s > 1.5 * limit

    def stopped_for(self, r: Running) -> str:
        """Why an overdue trial was stopped."""
        h, limit = read_heartbeat(r.folder), r.spec.cpu_limit_s
        if h is not None and h.phase.startswith(USER_CODE) and not self.over_limit(r, h):
            return f"{h.phase.removeprefix(USER_CODE)} did not return for {STALE_S:.0f} s: hung, stopped; correct it"
        if h is not None and limit is not None and self.over_limit(r, h):
            return f"used {h.cpu_s:.0f} CPU-s of {limit:.0f}; raise budget.trial_cpu_s or lower recipe.steps"
        return f"no heartbeat for {STALE_S:.0f} s and hardly any CPU time used: hung, stopped"

    def collect(self, r: Running) -> TrialFinished:
        """The result of an ended process; machine faults are raised, the trial's own faults become its result."""
        code = r.process.poll()
        if code is None:
            end(r.process)
            return self.failed(r, "harness_abort", self.stopped_for(r))
        if code == 0 and (done := self.result(r.spec)) is not None:
            return done
        why = self.why(r)
        if code == EXIT_BUSY:
            raise AbortedError(f"trial {r.spec.trial} is held by another process; end that one first, then resume")
        if (code < 0 or not (r.folder / "error").is_file()) and (full := disk_full(r.folder)):
            raise StoreError(
                f"trial {r.spec.trial} ended (exit code {code}) while {full}; "
                "free some space and `evotrainer resume` goes on"
            )
        if code == StoreError.exit_code:
            raise StoreError(f"trial {r.spec.trial}: {why}; fix it and `evotrainer resume` goes on")
        if code == SandboxError.exit_code:
            raise SandboxError(f"trial {r.spec.trial}: {why}")
        if code == FaultsError.exit_code:
            raise FaultsError(f"{why}; fix the cause and `evotrainer resume` tries it again")
        if code < 0:
            return self.failed(
                r, "crash", f"killed by signal {-code} {self.restarts + 1} times (out of memory?): {why}"
            )
        label: FailureLabel = "train_budget_overrun" if code == BudgetError.exit_code else "crash"
        if read_heartbeat(r.folder) is None:
            label = "preflight_crash"
        return self.failed(r, label, why)

    def failed(self, r: Running, label: FailureLabel, error: str) -> TrialFinished:
        return self.record_failure(r.spec, r.folder, label, error, time.monotonic() - r.since, read_heartbeat(r.folder))

    def record_failure(
        self, spec: TrialSpec, folder: Path, label: FailureLabel, error: str, wall_s: float, h: Heartbeat | None
    ) -> TrialFinished:
        """Write the result of a trial that failed, `h`: its last sign of life, with checksums of what it left."""
        left = [folder / "spec.json", *store_dirs(self.run_dir, spec.trial)]
        finished = TrialFinished(
            trial=spec.trial,
            branch=spec.branch,
            seed=spec.seed,
            status="failed",
            label=label,
            error=error,
            cpu_s=round(h.cpu_s if h else 0.0, 3),
            wall_s=round(wall_s, 3),
            gpu_s=round(h.gpu_s if h else 0.0, 3),
            steps=h.step if h else 0,
            files={
                k: v
                for p in left
                if p.exists()
                for k, v in sha256_tree(p, self.run_dir).items()
                if Path(k).name != LOCK  # the process's, not the trial's: it does not travel
            },
        )
        write_atomic(folder / "result.json", finished.model_dump_json())
        return finished

    def why(self, r: Running) -> str:
        """The trial's own error line, or the last line of its log."""
        with contextlib.suppress(OSError):
            return read_text(r.folder / "error").strip()
        with contextlib.suppress(OSError):
            with open_regular(r.folder / "log.txt") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_END))
                lines = log.read(LOG_END).decode(errors="replace").strip().splitlines()
            if lines:
                return cut(last_error(lines), 500)
        if r.process.poll() == StoreError.exit_code:
            return "it could not write, not even why: the disk was full"
        return f"exit code {r.process.poll()} without a word; see {r.folder / 'log.txt'}"


def last_error(lines: Sequence[str]) -> str:
    """The error that a log ends with: its last line, or where that belongs to a message of several, all of them."""
    lines = [x for x in lines if not x.strip().startswith("For further information")] or lines
    at = next((i for i in range(len(lines) - 1, -1, -1) if re.match(r"[\w.]+(Error|Exception|Exit)\b", lines[i])), None)
    if at is None or at == len(lines) - 1 or len(lines) - at > 8:
        return lines[-1]
    return "; ".join(s for x in lines[at:] if (s := x.strip()))


def disk_full(folder: Path) -> str:
    """Why a folder's disk takes no few hundred KB more, as `the disk ...`; empty where it does."""
    probe = folder / "probe.tmp"
    try:
        free = shutil.disk_usage(folder).free
        with contextlib.suppress(FileNotFoundError), open(probe, "wb") as f:  # a quota does not show in the free space
            f.write(bytes(FULL_BYTES if free > FULL_BYTES else 0))
            f.flush()
            os.fsync(f.fileno())
    except OSError as e:
        return f"the disk takes no more ({e.strerror})"
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    return f"the disk is full ({free >> 10} KB free)" if free <= FULL_BYTES else ""


def end(process: WatchedProcess) -> None:
    """Kill a trial's whole process group and reap it."""
    if isinstance(process, Forked):
        process.kill()
    elif process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

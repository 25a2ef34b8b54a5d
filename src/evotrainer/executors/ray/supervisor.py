"""Supervises a trial on a node: starts the same worker process as the local executor, keeps its files safe, tells
how it goes, and ends it when nobody asks any more. It runs inside a Ray actor, and knows nothing of Ray.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError, EvoTrainerError, StoreError
from evotrainer.executors.local import LocalExecutor, Running, end
from evotrainer.executors.path_map import PLACES
from evotrainer.executors.process import EXIT_BUSY
from evotrainer.executors.ray.artifacts import Artifacts
from evotrainer.executors.ray.job import ENDED, NodeJob, Report, versions
from evotrainer.executors.ray.uploader import Uploader, owned, sweep
from evotrainer.executors.spec import Heartbeat, TrialSpec, read_heartbeat, trial_dir, write_atomic
from evotrainer.records.clock import unix_time
from evotrainer.records.regular_file import read_text
from evotrainer.records.sealed import Key

CHECK_S = 0.2
"""Seconds between two checks of the trial's process."""


class Lease:
    """A lease that expires when it was not renewed for `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.renew()

    def renew(self) -> None:
        self.until = time.monotonic() + self.seconds

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until


class NodeSupervisor:
    """One attempt. The thread that starts the trial's process lives as long as the supervisor: they die together.

    `start_group`: starts data-parallel processes in place of a single one (`group.py`).
    """

    def __init__(
        self, job: Mapping[str, Any], start_group: Callable[[NodeJob, Path], subprocess.Popen[bytes]] | None = None
    ) -> None:
        given = job.get("versions", {})
        mine = versions()
        self.lease = Lease(float(job["lease_s"]))
        self.changed = threading.Condition()
        self.report = Report(job["trial"], job["attempt"], node=node_name())
        self.stopping = False
        self.asked = 0
        """Questions that are open now."""
        self.start_group = start_group
        self.several = False
        if given != mine:
            described = ", ".join(
                f"{k} {mine.get(k, 'none')} where the driver has {v}" for k, v in given.items() if mine.get(k) != v
            )
            self.update(
                state="refused",
                kind="ConfigError",
                error=f"node {self.report.node} has {described}; install the driver's versions on every node, or give "
                "executor.options.runtime_env",
            )
        else:
            self.job = NodeJob.unpack(job)
        self.thread = threading.Thread(target=self._main, daemon=True)
        self.thread.start()

    # what the driver calls --------------------------------------------------------------------------------------------

    def watch(self, seen: int, wait_s: float, interval_s: float = 0.0) -> dict[str, Any]:
        """The report, at once where the driver has not seen it, else when it changes or `wait_s` is over.

        `interval_s`: a heartbeat alone is not reported sooner than that.
        """
        begin = time.monotonic()
        with self.changed:
            self.lease.renew()
            self.asked += 1
            try:
                while (left := begin + wait_s - time.monotonic()) > 0:
                    r = self.report
                    if r.state in ENDED or (r.number > seen and time.monotonic() - begin >= interval_s):
                        break
                    if r.number > seen:
                        left = min(left, begin + interval_s - time.monotonic())
                    self.changed.wait(max(left, 0.01))
            finally:
                self.asked -= 1
                self.lease.renew()
            return asdict(self.report)

    def stop(self) -> None:
        """End the trial's process and wait for it."""
        self.stopping = True
        while self.report.state not in ENDED and self.thread.is_alive():
            time.sleep(CHECK_S / 4)

    def leave(self) -> None:
        """Called once no driver asks any more."""

    # the attempt ------------------------------------------------------------------------------------------------------

    def update(self, **changes: Any) -> None:
        with self.changed:
            r = asdict(self.report)
            self.report = Report(**{**r, **changes, "number": r["number"] + 1})
            self.changed.notify_all()

    @property
    def abandoned(self) -> bool:
        return self.stopping or (self.lease.over and not self.asked)

    def _main(self) -> None:
        if self.report.state != "refused":
            self._all()
        while not self.abandoned:
            time.sleep(CHECK_S)
        self.leave()

    def _all(self) -> None:
        try:
            with self._workspace() as run_dir:
                ended = self._attempt(run_dir)
            self.update(**ended)
        except EvoTrainerError as e:
            self.update(state="refused" if isinstance(e, ConfigError) else "fault", kind=type(e).__name__, error=str(e))
        except Exception as e:  # reported as what it is: nobody else would see it
            self.update(state="fault", kind="StoreError", error=f"node {self.report.node}: {type(e).__name__}: {e}")

    @contextlib.contextmanager
    def _workspace(self) -> Any:
        """The run folder as the trial sees it: the shared one, or one of its own with all that it needs."""
        j = self.job
        if j.run_dir:
            shared = Path(j.run_dir)
            if not (trial_dir(shared, j.trial) / "spec.json").is_file():
                raise ConfigError(
                    f"node {self.report.node} does not see the run folder {shared}; "
                    "put it on a file system that all nodes share, or set executor.options.artifacts to an fsspec URL"
                )
            yield shared
            return
        base = Path(j.scratch or tempfile.gettempdir()) / f"evotrainer-{j.key}"
        self.update(state="preparing")
        try:
            base.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise StoreError(
                f"node {self.report.node}: cannot make {base}: {e.strerror}; set executor.options.scratch"
            ) from e
        sweep(base)
        with owned(base / f"{j.trial}-a{j.attempt}") as own:
            run_dir = own / j.run
            self.artifacts = Artifacts(j.artifacts, j.key, j.artifacts_options)
            self.artifacts.restore(j.trial, run_dir)
            places: dict[str, str] = {}
            for tree in j.inputs:
                to = run_dir / tree.place if tree.place else base / "inputs" / tree.key
                self.artifacts.get_inputs(tree.items, to)
                if not tree.place:
                    places[tree.root] = str(to / Path(tree.root).name if tree.single else to)
            folder = trial_dir(run_dir, j.trial)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(folder / PLACES, json.dumps(places))
            yield run_dir

    def _attempt(self, run_dir: Path) -> dict[str, Any]:
        """Run it; what is to be told of its end, once the files are safe and the workspace is gone."""
        j = self.job
        spec = TrialSpec.model_validate_json(j.spec)
        local = LocalExecutor(run_dir, workers=1, restarts=0)
        take_key(j.data_key)
        folder = trial_dir(run_dir, spec.trial)
        self._carry_costs(folder)
        if (done := local.result(spec)) is not None:
            return self._finish(run_dir, done.model_dump_json())
        r = self._start(local, spec, folder)
        uploader = self._uploader(run_dir) if not j.run_dir else None
        try:
            while r.process.poll() is None and not self._late(local, r):
                self._check(folder, uploader)
                if self.abandoned:
                    end(r.process)
                    return {"state": "expired", "error": f"nobody asked for {j.lease_s:.0f} s"}
                time.sleep(CHECK_S)
            return self._ended(local, r, run_dir, uploader)
        finally:
            end(r.process)
            if uploader is not None:
                uploader.close()

    def _start(self, local: LocalExecutor, spec: TrialSpec, folder: Path) -> Running:
        self.several = self.job.workers > 1 and spec.train and self.start_group is not None
        if self.several and self.start_group is not None:
            local.prepare(spec)
            return Running(spec, folder, self.start_group(self.job, folder), time.monotonic())
        return local.start(spec, threads=self.job.threads, env=self.job.env)

    def _late(self, local: LocalExecutor, r: Running) -> bool:
        """Hung or over its limit. The processes of a group are elsewhere: collectives have their own timeout."""
        if self.several:
            return local.over_limit(r, read_heartbeat(r.folder))
        return local.overdue(r)

    def _check(self, folder: Path, uploader: Uploader | None) -> None:
        with contextlib.suppress(OSError):
            text = read_text(folder / "heartbeat")
            if text != self.report.heartbeat:
                self.update(state="running", heartbeat=text)
        if uploader is not None:
            uploader.check()

    def _ended(self, local: LocalExecutor, r: Running, run_dir: Path, uploader: Uploader | None) -> dict[str, Any]:
        self._check(r.folder, None)
        code = r.process.poll()
        if uploader is not None:
            uploader.close()
        if code == EXIT_BUSY:
            return {"state": "busy", "error": "another process holds the trial's folder"}
        if local.was_killed(r):
            self._rescue(uploader)
            return {"state": "killed", "error": f"killed by signal {-(code or 0)} (out of memory?): {local.why(r)}"}
        try:
            done = local.collect(r)
        except EvoTrainerError:
            self._rescue(uploader)  # what was trained stays, whatever stopped it
            raise
        return self._finish(run_dir, done.model_dump_json(), uploader)

    def _rescue(self, uploader: Uploader | None) -> None:
        if uploader is not None:
            with contextlib.suppress(StoreError):
                uploader.save()

    def _finish(self, run_dir: Path, result: str, uploader: Uploader | None = None) -> dict[str, Any]:
        if not self.job.run_dir:
            (uploader or self._uploader(run_dir)).save(final=True)
        return {"state": "finished", "result": result}

    def _uploader(self, run_dir: Path) -> Uploader:
        def saved(step: int, sent: int) -> None:
            self.update(saved=step, sent_bytes=self.report.sent_bytes + sent)

        return Uploader(self.job, run_dir, self.artifacts, saved)

    def _carry_costs(self, folder: Path) -> None:
        """What earlier attempts used, also after their last checkpoint, counts against the trial's limits."""
        if not self.job.heartbeat:
            return
        before = Heartbeat.model_validate_json(self.job.heartbeat)
        mine = read_heartbeat(folder)
        if mine is None or mine.cpu_s < before.cpu_s:
            beat = before.model_copy(update={"time": unix_time()})
            write_atomic(folder / "heartbeat", beat.model_dump_json(), durable=False)


def take_key(key: str) -> None:
    """From here on this process can hand a job's key (hex; empty: it has none) to the trial's."""
    if key:
        Key(bytes.fromhex(key)).hold()


def node_name() -> str:
    """Name of this machine, with the address Ray gave it where it has one of its own."""
    address = os.environ.get("EVOTRAINER_NODE_IP", "")
    return f"{socket.gethostname()} ({address})" if address else socket.gethostname()

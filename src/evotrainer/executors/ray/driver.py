"""The driver's side of trials on a cluster: placement, lost nodes, results. It imports no Ray.

A `Backend` starts supervisors (`supervisor.py`) and brings their reports; `executor.py` is the one of Ray. Every
attempt at a trial is a line in the run folder's `executor.jsonl`: a driver that was killed finds its attempts again.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from evotrainer import errors
from evotrainer.errors import AbortedError, EvoTrainerError, StoreError, TrainerError
from evotrainer.executors.data_keys import passed_key
from evotrainer.executors.devices import GIVEN
from evotrainer.executors.inputs import Inputs, Tree
from evotrainer.executors.local import LocalExecutor
from evotrainer.executors.ray.artifacts import Artifacts, Snapshot
from evotrainer.executors.ray.attempts import Attempts, DispatchedTrial
from evotrainer.executors.ray.backend import Backend, SupervisorLost
from evotrainer.executors.ray.file_copier import FileCopier
from evotrainer.executors.ray.job import NodeJob, Report, versions
from evotrainer.executors.ray.options import ClusterOptions
from evotrainer.executors.ray.results import VISIBLE_S, ResultCollector
from evotrainer.executors.spec import Heartbeat, TrialSpec, read_heartbeat, trial_dir
from evotrainer.records.durable import os_errors
from evotrainer.records.events import TrialFinished
from evotrainer.trainers.continued import STARTED

POLL_S = 0.2
"""Longest wait for reports."""
FETCHES = 4
"""Trials whose files are downloaded at once."""
SHOWN_A_SECOND = 1000
"""Trials whose progress is reported per second."""
AHEAD = 2
"""Trials handed to a full cluster beyond what runs, so that a free place is taken without the driver."""

Progress = Callable[[list[tuple[TrialSpec, Heartbeat | None]]], None]


class ClusterExecutor:
    """Runs trial specs on a cluster. What counts as a trial's own fault, and what stops the run,
    is as with LocalExecutor.

    A node or process that is lost is no fault of the trial: it goes on elsewhere from its last checkpoint,
    `retries` times without a step gained.
    """

    def __init__(self, run_dir: Path, options: ClusterOptions, backend: Backend) -> None:
        self.run_dir, self.options, self.backend = run_dir, options, backend
        self.local = LocalExecutor(run_dir, workers=1)
        self.opened = False
        self.next_slots = 0.0
        self.places = 1
        self.running: dict[str, DispatchedTrial] = {}

    # the interface of executors ---------------------------------------------------------------------------------------

    def run(self, specs: Sequence[TrialSpec], on_progress: Progress = lambda _: None) -> Iterator[TrialFinished]:
        """Yield results as they come, finished ones first without running them again."""
        waiting: deque[DispatchedTrial] = deque()
        for spec in specs:
            if (done := self.local.result(spec)) is not None:
                yield done
            else:
                waiting.append(DispatchedTrial(spec, 0))
        if not waiting:
            return
        self._open()
        running = self.running = {}
        fetching: dict[Future[TrialFinished], DispatchedTrial] = {}
        pool = ThreadPoolExecutor(FETCHES, thread_name_prefix="fetch")
        try:
            self._take_up(waiting, running)
            for a in [a for a in waiting if self._ended_earlier(a)]:
                waiting.remove(a)
                fetching[pool.submit(self.results.collect, a, None)] = a
            last_report = 0.0
            while waiting or running or fetching:
                self._submit(waiting, running)
                for report in self.backend.poll(POLL_S if running else 0.0):
                    attempt = running.get(report.trial)
                    if attempt is None or attempt.number != report.attempt:
                        continue
                    a = attempt
                    if self._hear(a, report):
                        del running[a.spec.trial]
                        if isinstance(report, Report) and report.state == "finished":
                            fetching[pool.submit(self.results.collect, a, report)] = a
                        elif (given_up := self._again(a, report)) is not None:
                            yield given_up
                        else:
                            waiting.appendleft(a)
                for f in [f for f in fetching if f.done()]:
                    a = fetching.pop(f)
                    result = f.result()
                    self._settle(a)
                    yield result
                if (now := time.monotonic()) - last_report >= max(POLL_S / 2, len(running) / SHOWN_A_SECOND):
                    last_report = now
                    on_progress([(a.spec, a.beat) for a in (*running.values(), *fetching.values())])
                if not running:
                    time.sleep(POLL_S / 4)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            for a in running.values():
                self.backend.end(a.spec.trial, a.number)
                with contextlib.suppress(StoreError):
                    self.attempts.write(trial=a.spec.trial, attempt=a.number, event="ended", why="the driver stopped")

    def forget(self, trial: str) -> None:
        """Take back the result of a failed trial that nothing recorded, so that a resume tries it again."""
        self.local.forget(trial)

    def close(self) -> None:
        """Leave the cluster. Trials that run go on until their lease is over."""
        if self.opened:
            self.opened = False
            self.backend.close()

    # beginnings -------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self.opened:
            return
        with os_errors(f"cannot make {self.run_dir}"):
            self.run_dir.mkdir(parents=True, exist_ok=True)
        self.attempts = Attempts(self.run_dir)
        o = self.options
        self.artifacts = Artifacts(o.artifacts, self.attempts.key, o.artifacts_options) if o.artifacts else None
        self.inputs = Inputs(self.run_dir, o.files)
        self.results = ResultCollector(self.run_dir, self.local, self.artifacts)
        self.options = self.backend.open(self.attempts.key, o)
        self.opened = True

    def _take_up(self, waiting: deque[DispatchedTrial], running: dict[str, DispatchedTrial]) -> None:
        """Listen again to attempts of a driver before us; older ones, and what nobody wants any more, are ended."""
        alive = self.backend.alive()
        wanted = {a.spec.trial: a for a in waiting}
        for trial, numbers in alive.items():
            last = max(numbers)
            for n in numbers:
                if n != last or trial not in wanted:
                    self.backend.end(trial, n)
            self.attempts.last[trial] = max(self.attempts.last.get(trial, 0), last)
            if trial in wanted and self.backend.attach(trial, last):
                a = wanted[trial]
                a.number = last
                waiting.remove(a)
                running[trial] = a
                self.attempts.write(trial=trial, attempt=last, event="taken up")

    def _ended_earlier(self, a: DispatchedTrial) -> bool:
        """True where an attempt that nobody waited for ended well: its files lie in the artifacts."""
        if self.artifacts is None or not self.attempts.last.get(a.spec.trial):
            return False
        return self.artifacts.final(a.spec.trial) is not None

    def _submit(self, waiting: deque[DispatchedTrial], running: dict[str, DispatchedTrial]) -> None:
        now = time.monotonic()
        if waiting and now >= self.next_slots:
            self.places = self._places()
            self.next_slots = now + 2.0
        for _ in range(len(waiting)):
            if len(running) >= self.places:
                return
            a = waiting.popleft()
            if a.wait_until > now:
                waiting.append(a)
                continue
            self._send(a)
            running[a.spec.trial] = a

    def _places(self) -> int:
        """How many trials the cluster may be given now."""
        o = self.options
        if o.max_concurrent:
            return o.max_concurrent
        return max(1, self.backend.slots()) + AHEAD

    def _send(self, a: DispatchedTrial) -> None:
        folder = self.local.prepare(a.spec, durable=False)
        a.beat = a.beat or read_heartbeat(folder)
        a.number, a.report, a.since = self.attempts.next(a.spec.trial), None, time.monotonic()
        o = self.options
        trees: tuple[Tree, ...] = ()
        if self.artifacts is not None:
            found, files = self.inputs.of(a.spec)
            self.artifacts.put_inputs(files)
            self._hand_over(a.spec.trial)
            trees = tuple(found)
        self.attempts.write(trial=a.spec.trial, attempt=a.number, event="submitted")
        self.backend.submit(
            NodeJob(
                key=self.attempts.key,
                run=a.spec.run,
                spec=a.spec.model_dump_json(),
                trial=a.spec.trial,
                attempt=a.number,
                run_dir="" if self.artifacts else str(self.run_dir.resolve()),
                artifacts=o.artifacts or "",
                artifacts_options=o.artifacts_options,
                inputs=trees,
                heartbeat=a.beat.model_dump_json() if a.beat else "",
                scratch=o.scratch,
                env={**o.env, GIVEN: f"{o.gpus * o.workers_per_trial:g}"},
                threads=max(1, int(o.cpus)),
                lease_s=o.lease_s,
                workers=o.workers_per_trial,
                runtime_env=o.runtime_env,
                resources={"CPU": o.cpus, **({"GPU": o.gpus} if o.gpus else {})},
                versions=versions(),
                data_key=passed_key(a.spec).hex(),
            )
        )

    def _hand_over(self, trial: str) -> None:
        """What an earlier executor left of the trial in the run folder goes to the nodes,
        where they have nothing newer."""
        assert self.artifacts is not None
        left = [trial_dir(self.run_dir, trial) / name for name in ("checkpoint", STARTED)]
        if not any(p.is_dir() for p in left) or any(self.artifacts.snapshots(trial)):
            return
        copier = FileCopier(self.run_dir, trial)
        staged = self.run_dir / f".leaving-{trial}"
        try:
            files = copier.take(staged)
            self.artifacts.put_snapshot(trial, Snapshot(0, 1, False, copier.items(files)), files)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    # reports ----------------------------------------------------------------------------------------------------------

    def _hear(self, a: DispatchedTrial, report: Report | SupervisorLost) -> bool:
        """Note a report; True once the attempt is over. Faults that stop the whole run are raised."""
        if isinstance(report, SupervisorLost):
            return True
        if a.report is None or not a.report.node:
            self.attempts.write(trial=report.trial, attempt=report.attempt, event="placed", node=report.node)
        a.report, a.beat = report, report.beat() or a.beat
        if report.state in ("fault", "refused"):
            self.attempts.write(
                trial=report.trial, attempt=report.attempt, event=report.state, node=report.node, why=report.error
            )
            raise named_error(report.kind, f"{report.error}")
        return report.state in ("finished", "killed", "busy", "expired")

    def _again(self, a: DispatchedTrial, report: Report | SupervisorLost) -> TrialFinished | None:
        """After a loss: None where the trial is to be tried again, its failure where it killed itself too often."""
        state = report.state if isinstance(report, Report) else "lost"
        why = report.error if isinstance(report, Report) else report.why
        node = a.report.node if a.report else ""
        step = a.beat.step if a.beat else 0
        self.attempts.write(trial=a.spec.trial, attempt=a.number, event=state, node=node, step=step, why=why)
        self.backend.end(a.spec.trial, a.number)
        if state == "expired":  # the driver was away: nobody's fault
            return None
        if state == "busy":
            now = time.monotonic()
            a.busy_since = a.busy_since or now
            if now - a.busy_since > self.options.lease_s + VISIBLE_S:
                raise AbortedError(f"trial {a.spec.trial} is held by another process; end that one first, then resume")
            a.wait_until = now + min(5.0, self.options.lease_s / 4)
            return None
        a.busy_since = None
        reached = step // max(1, a.spec.checkpoint_every)
        a.losses = 1 if reached > a.best else a.losses + 1
        a.best = max(a.best, reached)
        if a.losses <= self.options.retries:
            a.wait_until = time.monotonic() + (0.0 if a.losses == 1 else min(30.0, 2.0 ** (a.losses - 2)))
            return None
        if state == "killed":
            return self.results.failed(a, "crash", f"{why}, {a.losses} times without getting beyond step {step}")
        raise TrainerError(
            f"trial {a.spec.trial} lost its place in the cluster {a.losses} times without getting beyond step "
            f"{max(step, 0)}; the last time: {why}; look at `ray status`, then `evotrainer resume {self.run_dir}` "
            "goes on from its last checkpoint"
        )

    def _settle(self, a: DispatchedTrial) -> None:
        """Delete the trial's files on the cluster once they are here."""
        node = a.report.node if a.report else ""
        self.attempts.write(trial=a.spec.trial, attempt=a.number, event="finished", node=node)
        if a.number:
            self.backend.end(a.spec.trial, a.number)
        if self.artifacts is not None:
            self.artifacts.drop(a.spec.trial)


def named_error(kind: str, text: str) -> EvoTrainerError:
    """The error that a node reported, as the class it was there."""
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, EvoTrainerError):
        return found(text)
    return TrainerError(text)

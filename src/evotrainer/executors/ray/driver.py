"""The driver's side of trials on a cluster: who runs where, what a lost node means, whose results are in. No Ray here.

A `Backend` starts keepers (`executors.keeper`) and brings their reports; `executors.ray` is one. Every attempt at a
trial is a line in the run folder's `executor.jsonl`, so that a driver that was killed finds its attempts again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field, ValidationError

from evotrainer import errors
from evotrainer.errors import AbortedError, ConfigError, EvoTrainerError, IntegrityError, StoreError, TrainerError
from evotrainer.executors.local import LocalExecutor
from evotrainer.executors.ray.artifacts import Artifacts, Photographer, Snapshot
from evotrainer.executors.ray.inputs import Inputs, Tree
from evotrainer.executors.ray.supervisor import Job, Report, versions
from evotrainer.executors.spec import Heartbeat, TrialSpec, read_heartbeat, trial_dir
from evotrainer.records.durable import os_errors
from evotrainer.records.events import FailureLabel, TrialFinished
from evotrainer.records.recipe import Frozen, explain

POLL_S = 0.2
"""Longest wait for reports."""
VISIBLE_S = 90.0
"""A file that a node wrote on a shared file system must be seen here within so many seconds (attribute caches)."""
FETCHES = 4
"""Trials whose files are downloaded at once."""
SHOWN_A_SECOND = 1000
"""Trials whose progress is handed on in a second."""
AHEAD = 2
"""Trials handed to a full cluster beyond what runs, so that a free place is taken without the driver."""

Progress = Callable[[list[tuple[TrialSpec, Heartbeat | None]]], None]


class ClusterOptions(Frozen):
    """`[executor.options]` of a cluster (docs/cluster.md)."""

    address: str | None = None
    """`auto`: the cluster this machine belongs to; `host:port`; `ray://host:port`: from outside. None: RAY_ADDRESS,
    or else a cluster of this machine alone, which ends with the driver."""
    cpus: float = Field(1.0, ge=0)
    """CPUs reserved for each trial, or for each process of a data-parallel one; also its threads (at least 1)."""
    gpus: float = Field(0.0, ge=0)
    """GPUs reserved likewise. Not given: 1 for the trl trainer on a cluster that has GPUs, else 0."""
    memory: float | None = Field(None, gt=0)
    """Bytes reserved for each trial; Ray plans with them."""
    max_concurrent: int = Field(0, ge=0)
    """Trials at once; 0: as many as the cluster holds."""
    retries: int = Field(3, ge=0)
    """A trial that loses its node, or is killed there,
    begins again from its last checkpoint so often without getting further."""
    artifacts: str | None = None
    """fsspec URL that driver and nodes can reach; None: the run folder lies on a file system they share."""
    artifacts_options: dict[str, Any] = {}
    """Options of its file system: endpoint, credentials (better: the environment's)."""
    files: tuple[str, ...] | None = None
    """What travels to the nodes beside what the task file names;
    None: the whole folder of each Python file it names."""
    scratch: str = ""
    """Folder for trials' files on the nodes, with `artifacts`; empty: the system's."""
    env: dict[str, str] = {}
    """Environment variables of trials."""
    runtime_env: dict[str, Any] = {}
    """Ray's runtime environment of trials: pip, working_dir, py_modules, ..."""
    resources: dict[str, float] = {}
    """Custom resources of Ray that each trial asks for, e.g. {"big" = 1}."""
    workers_per_trial: int = Field(1, ge=1)
    """Data-parallel processes of one training (Ray Train); its evaluations run in the first of them."""
    lease_s: float = Field(600.0, ge=5)
    """A trial that no driver asked about for so long ends itself; a driver that returns sooner finds it at work."""
    autoscaling: bool = False
    """The cluster grows on demand: trials may wait for nodes that do not exist yet."""
    object_store_mb: int | None = Field(None, ge=78)
    """Object store of a cluster that is started here; trials use next to none."""


def parse_cluster_options(options: Mapping[str, Any]) -> ClusterOptions:
    """ConfigError for unknown or malformed ones."""
    try:
        o = ClusterOptions.model_validate(dict(options))
    except ValidationError as e:
        raise ConfigError(f"executor.options: {explain(e, ClusterOptions)}") from None
    if o.workers_per_trial > 1 and o.artifacts:
        raise ConfigError(
            "executor.options: the processes of a data-parallel trial share its folder, "
            "so workers_per_trial above 1 needs a run folder on a file system that the nodes share; "
            "leave artifacts out, or set workers_per_trial to 1"
        )
    return o


def with_gpus(options: ClusterOptions, wanted: bool, there: float) -> ClusterOptions:
    """Options with a GPU for each process where the trainer wants one,
    the cluster has some and the user said nothing."""
    if wanted and there >= 1 and "gpus" not in options.model_fields_set:
        return options.model_copy(update={"gpus": 1.0})
    return options


class Backend(Protocol):
    """A cluster."""

    def open(self, key: str, options: ClusterOptions) -> ClusterOptions:
        """Connect and become the run's only driver; EvoTrainerError where that cannot be.
        Returns the options in force."""
        ...

    def slots(self) -> int:
        """Trials that the cluster could hold at once now."""
        ...

    def alive(self) -> dict[str, list[int]]:
        """Trial -> attempts that have a keeper now, also from an earlier driver."""
        ...

    def submit(self, job: Job) -> None:
        """Start a keeper, as soon as there is room."""
        ...

    def attach(self, trial: str, attempt: int) -> bool:
        """Listen to a keeper that is there; False where it is gone."""
        ...

    def poll(self, wait_s: float) -> list[Report | Lost]:
        """What is new, within `wait_s`."""
        ...

    def end(self, trial: str, attempt: int) -> None:
        """Kill a keeper and what it started; nothing where there is none."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Lost:
    """A keeper that is gone without a word of its own: its node, its process or its memory."""

    trial: str
    attempt: int
    why: str


@dataclass(slots=True)
class Attempt:
    """A trial in the cluster's hands."""

    spec: TrialSpec
    number: int
    report: Report | None = None
    beat: Heartbeat | None = None
    """The last sign of life, of this or an earlier attempt."""
    since: float = field(default_factory=time.monotonic)
    losses: int = 0
    """In a row, without a step gained."""
    best: int = -1
    """Checkpoints that were reached before a loss."""
    busy_since: float | None = None
    wait_until: float = 0.0


class Attempts:
    """`executor.jsonl`: the key of the run on clusters, then one line for each attempt and its end."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / "executor.jsonl"
        self.last: dict[str, int] = {}
        self.key = ""
        with contextlib.suppress(FileNotFoundError):
            text = self.path.read_text(encoding="utf-8")
            if text and not text.endswith("\n"):
                with os_errors(f"cannot write {self.path}"), open(self.path, "a", encoding="utf-8") as f:
                    f.write("\n")
            for line in text.splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):  # a torn line
                    self._read(json.loads(line))
        if not self.key:
            self.write(key=(key := f"{run_dir.resolve().name}-{uuid.uuid4().hex[:12]}"))
            self.key = key

    def _read(self, row: Mapping[str, Any]) -> None:
        self.key = row.get("key", self.key)
        if "trial" in row:
            self.last[row["trial"]] = max(self.last.get(row["trial"], 0), int(row["attempt"]))

    def write(self, **row: Any) -> None:
        """Append one line."""
        line = json.dumps({**row, "time": round(time.time(), 3)}) + "\n"
        with os_errors(f"cannot write {self.path}"), open(self.path, "a", encoding="utf-8") as f:
            f.write(line)

    def next(self, trial: str) -> int:
        self.last[trial] = self.last.get(trial, 0) + 1
        return self.last[trial]


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
        self.running: dict[str, Attempt] = {}

    # the interface of executors ---------------------------------------------------------------------------------------

    def run(self, specs: Sequence[TrialSpec], on_progress: Progress = lambda _: None) -> Iterator[TrialFinished]:
        """Yield results as they come, finished ones first without running them again."""
        waiting: deque[Attempt] = deque()
        for spec in specs:
            if (done := self.local.result(spec)) is not None:
                yield done
            else:
                waiting.append(Attempt(spec, 0))
        if not waiting:
            return
        self._open()
        running = self.running = {}
        fetching: dict[Future[TrialFinished], Attempt] = {}
        pool = ThreadPoolExecutor(FETCHES, thread_name_prefix="fetch")
        try:
            self._take_up(waiting, running)
            for a in [a for a in waiting if self._ended_earlier(a)]:
                waiting.remove(a)
                fetching[pool.submit(self._collect, a, None)] = a
            told = 0.0
            while waiting or running or fetching:
                self._submit(waiting, running)
                for report in self.backend.poll(POLL_S if running else 0.0):
                    heard = running.get(report.trial)
                    if heard is None or heard.number != report.attempt:
                        continue
                    a = heard
                    if self._hear(a, report):
                        del running[a.spec.trial]
                        if isinstance(report, Report) and report.state == "finished":
                            fetching[pool.submit(self._collect, a, report)] = a
                        elif (given_up := self._again(a, report)) is not None:
                            yield given_up
                        else:
                            waiting.appendleft(a)
                for f in [f for f in fetching if f.done()]:
                    a = fetching.pop(f)
                    result = f.result()
                    self._settle(a)
                    yield result
                if (now := time.monotonic()) - told >= max(POLL_S / 2, len(running) / SHOWN_A_SECOND):
                    told = now
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
        self.options = self.backend.open(self.attempts.key, o)
        self.opened = True

    def _take_up(self, waiting: deque[Attempt], running: dict[str, Attempt]) -> None:
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

    def _ended_earlier(self, a: Attempt) -> bool:
        """True where an attempt that nobody waited for ended well: its files lie in the artifacts."""
        if self.artifacts is None or not self.attempts.last.get(a.spec.trial):
            return False
        return self.artifacts.final(a.spec.trial) is not None

    def _submit(self, waiting: deque[Attempt], running: dict[str, Attempt]) -> None:
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

    def _send(self, a: Attempt) -> None:
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
            Job(
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
                env=o.env,
                threads=max(1, int(o.cpus)),
                lease_s=o.lease_s,
                workers=o.workers_per_trial,
                runtime_env=o.runtime_env,
                resources={"CPU": o.cpus, **({"GPU": o.gpus} if o.gpus else {})},
                versions=versions(),
            )
        )

    def _hand_over(self, trial: str) -> None:
        """What an earlier executor left of the trial in the run folder goes to the nodes,
        where they have nothing newer."""
        assert self.artifacts is not None
        if not (trial_dir(self.run_dir, trial) / "checkpoint").is_dir() or any(self.artifacts.snapshots(trial)):
            return
        camera = Photographer(self.run_dir, trial)
        staged = self.run_dir / f".leaving-{trial}"
        try:
            files = camera.take(staged)
            self.artifacts.put_snapshot(trial, Snapshot(0, 1, False, camera.items(files)), files)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    # reports ----------------------------------------------------------------------------------------------------------

    def _hear(self, a: Attempt, report: Report | Lost) -> bool:
        """Note a report; True once the attempt is over. Faults that stop the whole run are raised."""
        if isinstance(report, Lost):
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

    def _again(self, a: Attempt, report: Report | Lost) -> TrialFinished | None:
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
            return self._failed(a, "crash", f"{why}, {a.losses} times without getting beyond step {step}")
        raise TrainerError(
            f"trial {a.spec.trial} lost its place in the cluster {a.losses} times without getting beyond step "
            f"{max(step, 0)}; the last time: {why}; look at `ray status`, then `evotrainer resume {self.run_dir}` "
            "goes on from its last checkpoint"
        )

    def _failed(self, a: Attempt, label: FailureLabel, error: str) -> TrialFinished:
        if self.artifacts is not None:
            self.artifacts.restore(a.spec.trial, self.run_dir)
        folder = trial_dir(self.run_dir, a.spec.trial)
        return self.local.record_failure(a.spec, folder, label, error, time.monotonic() - a.since, a.beat)

    def _collect(self, a: Attempt, report: Report | None) -> TrialFinished:
        """A finished attempt's result with its files in the run folder."""
        if self.artifacts is not None:
            snapshot = self.artifacts.final(a.spec.trial)
            if snapshot is None:
                raise StoreError(
                    f"artifacts {self.artifacts.url}: trial {a.spec.trial} ended, but its files are not there; "
                    "was the folder emptied? `evotrainer resume` trains it again"
                )
            try:
                self.artifacts.fetch(a.spec.trial, snapshot, self.run_dir)
            except FileNotFoundError as e:
                raise StoreError(f"artifacts {self.artifacts.url}: {e} is gone; resume trains the trial again") from e
        wait = time.monotonic() + VISIBLE_S
        while (done := self.local.result(a.spec)) is None:
            if time.monotonic() > wait:
                raise StoreError(
                    f"trial {a.spec.trial} ended on {report.node if report else 'a node'}, "
                    f"but its result is not in {self.run_dir}: the nodes do not share this file system; "
                    "set executor.options.artifacts to an fsspec URL"
                )
            with contextlib.suppress(OSError):
                os.listdir(trial_dir(self.run_dir, a.spec.trial))  # refreshes a network file system's cache
            time.sleep(POLL_S)
        if report is not None and done != TrialFinished.model_validate_json(report.result):
            raise IntegrityError(
                f"trial {a.spec.trial}: result.json is not what its node reported; the run folder was changed"
            )
        self._check(a, done)
        return done

    def _check(self, a: Attempt, done: TrialFinished) -> None:
        """Every file the result vouches for is here, as it was on the node."""
        if self.artifacts is None:
            return
        from evotrainer.records.durable import sha256_file

        named = {**done.files, **dict(zip(done.parts, done.parts_sha256, strict=True))}
        for path, sha in named.items():
            p = self.run_dir / path
            if not p.is_file() or sha256_file(p) != sha:
                raise IntegrityError(
                    f"trial {a.spec.trial}: {path} did not arrive as it was on the node; "
                    "`evotrainer resume` fetches it again"
                )

    def _settle(self, a: Attempt) -> None:
        """Once the files are here, the cluster keeps nothing of the trial."""
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


__all__ = ["Attempts", "Backend", "ClusterExecutor", "ClusterOptions", "Lost", "parse_cluster_options"]

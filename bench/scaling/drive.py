"""One measurement of bench.scaling, in its own process:
`python -m bench.scaling.drive prepare|local|ray|simulated|calls ...`.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import resource
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from evotrainer.cli.base import base
from evotrainer.cli.init import init
from evotrainer.config.load import load_task
from evotrainer.config.task import TaskFile
from evotrainer.executors.local import LocalExecutor
from evotrainer.executors.ray.backend import SupervisorLost
from evotrainer.executors.ray.driver import ClusterExecutor
from evotrainer.executors.ray.executor import RayBackend
from evotrainer.executors.ray.job import NodeJob, Report
from evotrainer.executors.ray.options import ClusterOptions, parse_cluster_options
from evotrainer.executors.spec import EvalPlan, Heartbeat, TrialSpec, trial_dir
from evotrainer.projections.branches import Branch
from evotrainer.records.events import TrialFinished
from evotrainer.records.ledger import Ledger
from evotrainer.run import trial_specs
from evotrainer.run.open_run import open_context
from evotrainer.views.terminal import LiveView

DURATIONS = "durations.json"
STEP_S = 2.0
"""A simulated worker gives a sign of life so often."""
FASTEST = 200.0
"""Trials a second that no driver is expected to reach: so many are prepared."""
STORE = 80 << 20


def task(scratch: Path) -> TaskFile:
    """A small task with a base policy, made once."""
    folder = scratch / "task"
    if not (folder / "base").is_dir():
        init(folder)
        shape = ["policy.warm_start.shape.width=64", "policy.warm_start.shape.layers=2", "policy.warm_start.steps=20"]
        base(folder / "task.toml", shape, out=folder / "base")
    over = [
        "budget.cpu_s=1e12",
        "budget.wall_s=1e9",
        "budget.trials=1000000000",
        "recipe.steps=10",
        "recipe.prompts_per_step=8",
        "recipe.group_size=4",
        f"policy.base={folder / 'base'}",
    ]
    return load_task(folder / "task.toml", over)


def spec(t: TaskFile, seed: int) -> TrialSpec:
    evals = tuple(EvalPlan(split=s, attempts=2, tasks=30) for s in ("search", "gate"))
    return TrialSpec(run="r", trial=f"b0-s{seed}", branch="b0", seed=seed, purpose="branch", train=True,
                     recipe=t.recipe, protocol=t.recipe, environment=t.environment, policy_dir=t.policy.base,
                     evals=evals, checkpoint_every=5, cpu_limit_s=600)  # fmt: skip


def cpu_s() -> float:
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime


def memory_mb() -> float:
    """Resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@contextmanager
def ray_cluster(nodes: int) -> Iterator[str]:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for i in range(nodes):
            cluster.add_node(num_cpus=1, node_ip_address=f"127.0.0.{i + 2}", object_store_memory=STORE)
        yield cluster.address
    finally:
        cluster.shutdown()


# 1. real trials -------------------------------------------------------------------------------------------------------


def prepare(args: argparse.Namespace) -> dict[str, float]:
    """The base policy, in a process that ends: none of its memory is the drivers'."""
    task(args.scratch)
    return {}


def local(args: argparse.Namespace) -> dict[str, float]:
    run_dir = Path(tempfile.mkdtemp(dir=args.scratch)) / "r"
    return real(LocalExecutor(run_dir, args.workers), args)


def ray(args: argparse.Namespace) -> dict[str, float]:
    run_dir = Path(tempfile.mkdtemp(dir=args.scratch)) / "r"
    with ray_cluster(args.workers) as address:
        executor = ClusterExecutor(run_dir, parse_cluster_options({"address": address}), RayBackend())
        try:
            return real(executor, args)
        finally:
            executor.close()


def real(executor: Any, args: argparse.Namespace) -> dict[str, float]:
    specs = [spec(task(args.scratch), s) for s in range(args.trials)]
    began, used = time.monotonic(), cpu_s()
    done = list(executor.run(specs))
    wall, used = time.monotonic() - began, cpu_s() - used
    assert all(d.status == "complete" for d in done), [d.error for d in done]
    if args.workers == 1:  # one at a time: what a trial takes on a core of its own
        rows = [d.model_dump(mode="json") for d in done]
        args.durations.write_text(json.dumps(rows))
    return {"trials": len(done), "wall_s": wall, "driver_cpu_s": used, "driver_mb": memory_mb()}


# 2. simulated workers -------------------------------------------------------------------------------------------------


class Timers:
    """A cluster of timers. Its own thread writes what nodes would write; its CPU time is its own."""

    def __init__(self, run_dir: Path, workers: int, measured: list[TrialFinished], slower: float) -> None:
        self.run_dir, self.workers, self.measured, self.slower = run_dir, workers, measured, slower
        self.rng = random.Random(0)
        self.due: list[tuple[float, int, str, int, int]] = []
        self.alive_now: dict[str, NodeJob] = {}
        self.ends: dict[str, tuple[float, TrialFinished]] = {}
        self.ready: list[Report | SupervisorLost] = []
        self.lock, self.over, self.turn = threading.Lock(), threading.Event(), 0
        self.cpu_s, self.full_at, self.began = 0.0, 0.0, time.monotonic()
        self.thread = threading.Thread(target=self._work, daemon=True)

    def open(self, key: str, options: ClusterOptions) -> ClusterOptions:
        self.began = time.monotonic()
        self.thread.start()
        return options

    def slots(self) -> int:
        return self.workers

    def alive(self) -> dict[str, list[int]]:
        return {}

    def attach(self, trial: str, attempt: int) -> bool:
        return False

    def submit(self, job: NodeJob) -> None:
        pattern = self.rng.choice(self.measured)
        now = time.monotonic()
        with self.lock:
            self.alive_now[job.trial] = job
            begun = self.rng.random() if not self.full_at else 0.0  # the first ones are found somewhere on their way
            self.ends[job.trial] = (now + (1.0 - begun) * pattern.wall_s * self.slower, pattern)
            self._at(now + self.rng.uniform(0, STEP_S), job, 0)
            if not self.full_at and len(self.alive_now) >= self.workers:
                self.full_at = now

    def _at(self, when: float, job: NodeJob, step: int) -> None:
        self.turn += 1
        heapq.heappush(self.due, (when, self.turn, job.trial, job.attempt, step))

    def _work(self) -> None:
        while not self.over.is_set():
            with self.lock:
                self._tick()
                self.cpu_s = time.thread_time()
            time.sleep(0.01)

    def _tick(self) -> None:
        now = time.monotonic()
        while self.due and self.due[0][0] <= now:
            _, _, trial, attempt, step = heapq.heappop(self.due)
            if (job := self.alive_now.get(trial)) is None:
                continue
            end, pattern = self.ends[trial]
            if now < end:
                beat = Heartbeat(pid=1, step=step, steps=10, phase="training", cpu_s=float(step), time=now, score=0.5)
                self.ready.append(Report(trial, attempt, step + 1, "running", "node", beat.model_dump_json()))
                self._at(min(end, now + STEP_S) + 0.001, job, step + 1)
            else:
                done = pattern.model_copy(update={"trial": trial, "branch": trial.partition("-")[0]})
                text = done.model_dump_json()
                (trial_dir(self.run_dir, trial) / "result.json").write_text(text)
                self.ready.append(Report(trial, attempt, step + 1, "finished", "node", result=text))
                del self.alive_now[trial], self.ends[trial]

    def poll(self, wait_s: float) -> list[Report | SupervisorLost]:
        until = time.monotonic() + wait_s
        while not self.ready and time.monotonic() < until:
            time.sleep(0.005)
        with self.lock:
            out, self.ready = self.ready, []
        return out

    def end(self, trial: str, attempt: int) -> None:
        with self.lock:
            self.alive_now.pop(trial, None)

    def close(self) -> None:
        self.over.set()


class EnoughError(Exception):
    """The measurement is long enough."""


def simulated(args: argparse.Namespace) -> dict[str, float]:
    """The driver with its ledger and plain view, for some seconds after every worker has work."""
    measured = [TrialFinished.model_validate(d) for d in json.loads(args.durations.read_text())]
    folder = Path(tempfile.mkdtemp(dir=args.scratch)) / "r"
    folder.mkdir()
    t = task(args.scratch)
    from rich.console import Console

    timers = Timers(folder, args.workers, measured, args.slower)
    with (
        open(folder / "said.txt", "w", encoding="utf-8") as said,
        Ledger.open(folder / "ledger.db", create=True) as ledger,
        open_context(
            folder,
            t,
            ledger,
            view=LiveView(folder, Console(file=said), plain=True),
            executor=lambda to, _: ClusterExecutor(to, parse_cluster_options({}), timers),
        ) as ctx,
    ):
        mean = statistics.fmean(d.wall_s for d in measured) * args.slower
        marks: list[tuple[float, float, float, int]] = []
        seen = 0

        def mark() -> None:
            now = time.monotonic()
            if now > timers.began + mean:  # also where the driver never gets them all to work
                marks.append((now, cpu_s(), timers.cpu_s, seen))
                if now - marks[0][0] > args.seconds:
                    raise EnoughError

        view = ctx.observer
        finished = view.finished

        def count(result: TrialFinished) -> None:
            nonlocal seen
            seen += 1
            finished(result)
            mark()

        shown = view.trials

        def show(rows: list[tuple[TrialSpec, Heartbeat | None]]) -> None:
            shown(rows)
            mark()

        view.finished, view.trials = count, show  # type: ignore[method-assign]
        n = args.workers + int(min(args.workers / mean, FASTEST) * (mean + args.seconds) * 1.3) + 10
        specs = [trial_specs.training(ctx, Branch(f"b{i}", None, 0, t.recipe, t.recipe.hash), 1) for i in range(n)]
        began = time.monotonic()
        with suppress(EnoughError):
            ctx.run_trials(specs)
        timers.close()
        a, b = marks[0], marks[-1]
        wall, used, done = b[0] - a[0], (b[1] - a[1]) - (b[2] - a[2]), b[3] - a[3]
        out = {"trials_s": done / wall, "offered": args.workers / mean, "cpu_share": used / wall, "mean_s": mean,
               "ms_per_trial": 1000 * used / max(done, 1),
               "first_s": timers.full_at - timers.began if timers.full_at else -1.0,
               "intended_ms": 1000 * (timers.began - began) / n, "driver_mb": memory_mb()}  # fmt: skip
    shutil.rmtree(folder.parent, ignore_errors=True)
    return out


# 3. Ray's share -------------------------------------------------------------------------------------------------------

ANSWERERS = 4


def calls(args: argparse.Namespace) -> dict[str, float]:
    """RayBackend with many open questions to actors that answer as keepers of busy trials do."""
    import ray as r

    class Answerer:
        async def watch(self, seen: int, wait_s: float, interval_s: float = 0.0) -> dict[str, Any]:
            import asyncio
            from dataclasses import asdict

            await asyncio.sleep(max(interval_s, STEP_S * random.uniform(0.9, 1.1)))
            beat = Heartbeat(pid=1, step=max(seen, 0), steps=10, phase="training", cpu_s=1.0, time=0.0, score=0.5)
            return asdict(Report("t", 1, seen + 1, "running", "node", beat.model_dump_json()))

        async def stop(self) -> None: ...

    class Many(RayBackend):
        def submit(self, job: NodeJob) -> None:
            from evotrainer.executors.ray.executor import WatchedTrial

            self._watch(WatchedTrial(job.trial, job.attempt, actors[hash(job.trial) % ANSWERERS]))

    with ray_cluster(1) as address:
        backend = Many()
        backend.open("bench", parse_cluster_options({"address": address}))
        actor = r.remote(num_cpus=0, max_concurrency=2 * args.workers)(Answerer)
        actors = [actor.remote() for _ in range(ANSWERERS)]
        s = spec(task(args.scratch), 1)
        for i in range(args.workers):
            backend.submit(NodeJob("bench", "r", s.model_dump_json(), f"t{i}", 1))
        heard: set[str] = set()
        while len(heard) < args.workers:  # the actors are up, and all questions open
            backend.poll(0.2)
            heard |= {w.trial for w in backend.watched.values() if w.seen >= 0}
        began, used, reports = time.monotonic(), cpu_s(), 0
        while time.monotonic() - began < args.seconds:
            reports += len(backend.poll(0.2))
        wall, used = time.monotonic() - began, cpu_s() - used
        backend.watched.clear()
        backend.close()
    return {
        "reports_s": reports / wall,
        "cpu_share": used / wall,
        "ms_per_report": 1000 * used / reports,
        "driver_mb": memory_mb(),
    }


PARTS = {"prepare": prepare, "local": local, "ray": ray, "simulated": simulated, "calls": calls}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--slower", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--durations", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    args = parser.parse_args()
    import sys

    with redirect_stdout(sys.stderr):
        task(args.scratch)
        measured = PARTS[args.part](args)
    print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()

"""Ray as the cluster of `executors.cluster`: one detached, named actor for each attempt, one leader for each run.

An attempt's actor outlives its driver: it is `<key>/<trial>/a<attempt>` in the namespace `evotrainer`, and the next
driver of the run finds it there. The leader dies with its driver, which frees its name for the next one. Ray is
imported in functions.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evotrainer.config.task import default_workers
from evotrainer.errors import (
    AbortedError,
    ConfigError,
    EvoTrainerError,
    MissingDependencyError,
    StoreError,
    TrainerError,
)
from evotrainer.executors.local import LocalExecutor, end
from evotrainer.executors.process import BESIDE, Clock, die_with_parent
from evotrainer.executors.ray.driver import ClusterOptions, Lost, with_gpus
from evotrainer.executors.ray.supervisor import ENDED, LOOK_S, Job, Keeper, Report
from evotrainer.executors.spec import read_spec, write_atomic
from evotrainer.executors.worker import TrialProcess, guarded, tell
from evotrainer.records.output import print

NAMESPACE = "evotrainer"
LEADER = "leader"
WATCH_S = 10.0
"""Longest time one question to a keeper stays open."""
A_SECOND = 300
"""Signs of life taken in a second; where more trials run, each is heard less often."""
RETRY_S = 2.0
"""Wait before a keeper that cannot be reached is asked again; Ray says in the end whether it is gone."""
TAKEOVER_S, TAKEOVER_CLIENT_S = 20.0, 60.0
"""How long a new driver waits for the old one's leader to go: Ray notices a dead driver at once,
a client's after 30 s."""
CLIENT_TRIES = 3
"""Tries to reach a cluster from outside."""
STOP_S = 15.0
"""Time that keepers have for ending their trials when the driver leaves."""


def import_ray() -> Any:
    """Ray; MissingDependencyError where it is not installed."""
    try:
        import ray
    except ImportError:
        raise MissingDependencyError(
            "executor.name=ray needs Ray, which is not installed; run: pip install 'evotrainer[ray]'"
        ) from None
    return ray


class Leader:
    """Holds the run's name while its driver lives."""

    def __init__(self, who: str) -> None:
        self.who = who

    def asked(self) -> str:
        return self.who


class RayKeeper(Keeper):
    """A keeper in its actor."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        import ray

        os.environ["EVOTRAINER_NODE_IP"] = ray.util.get_node_ip_address()
        super().__init__(job, self._group)

    def _group(self, job: Job, folder: Path) -> subprocess.Popen[bytes]:
        """The process that leads a data-parallel trial, as a Ray job of its own: what it started dies with it."""
        import ray

        command = [sys.executable, "-m", "evotrainer.executors.ray.executor", str(folder), str(os.getpid())]
        command.append(ray.get_runtime_context().gcs_address)
        with open(folder / "log.txt", "ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        assert process.stdin is not None
        with process.stdin as f:  # not on the command line: the environment may hold secrets
            f.write(json.dumps(job.pack()).encode())
        return process

    def leave(self) -> None:
        os._exit(0)  # a detached actor ends by nothing else, and holds its resources until then


@dataclass(slots=True)
class Watched:
    trial: str
    attempt: int
    handle: Any
    seen: int = -1
    state: str = ""


class RayBackend:
    """Keepers as Ray actors. `wants_gpu`: the trainer takes a GPU where it sees one."""

    def __init__(self, wants_gpu: bool = False) -> None:
        self.wants_gpu = wants_gpu
        self.watched: dict[tuple[str, int], Watched] = {}
        self.open_questions: dict[Any, Watched] = {}
        self.later: list[tuple[float, Watched]] = []
        self.stopping: dict[Any, Any] = {}
        self.started = False

    # the cluster ------------------------------------------------------------------------------------------------------

    def open(self, key: str, options: ClusterOptions) -> ClusterOptions:
        self.ray = import_ray()
        self.key, self.options = key, options
        if not self.ray.is_initialized():
            self._connect()
            self.started = True
        try:
            self.options = with_gpus(options, self.wants_gpu, float(self.ray.cluster_resources().get("GPU", 0.0)))
            self._lead()
            if not options.autoscaling:
                self._check_room()
        except BaseException:
            self.close()
            raise
        return self.options

    def _connect(self) -> None:
        o = self.options
        address = o.address or os.environ.get("RAY_ADDRESS")
        known: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": "ERROR"}
        if address is None or address == "local":
            known |= {"address": "local", "num_cpus": default_workers(), "include_dashboard": False}
            if o.object_store_mb:
                known["object_store_memory"] = o.object_store_mb << 20
        else:
            known["address"] = address
        try:
            self._init(known, CLIENT_TRIES if str(address).startswith("ray://") else 1)
        except (ConnectionError, TimeoutError) as e:
            raise TrainerError(
                f"no Ray cluster at {address}: {_line(e)}; start one (`ray start --head`), "
                "or give executor.options.address"
            ) from e
        except (RuntimeError, ValueError) as e:  # among them other versions of Ray or Python than the cluster's
            raise ConfigError(f"cannot join the Ray cluster at {address or 'this machine'}: {_line(e)}") from e

    def _init(self, options: dict[str, Any], tries: int) -> None:
        """`ray.init`; a busy head may need longer for a client's server than Ray waits."""
        for left in reversed(range(tries)):
            try:
                self.ray.init(**options)
                return
            except ConnectionError:
                if not left:
                    raise
                time.sleep(RETRY_S)

    def _lead(self) -> None:
        me = f"process {os.getpid()} on {socket.gethostname()}"
        client = (self.options.address or "").startswith("ray://")
        until = time.monotonic() + (TAKEOVER_CLIENT_S if client else TAKEOVER_S)
        actor = self.ray.remote(num_cpus=0)(Leader)
        while True:
            try:
                self.leader = actor.options(name=f"{self.key}/{LEADER}", namespace=NAMESPACE).remote(me)
                self.ray.get(self.leader.asked.remote(), timeout=120)
                return
            except ValueError:
                if time.monotonic() < until:
                    time.sleep(0.5)
                    continue
                who = "another driver"
                with contextlib.suppress(Exception):
                    old = self.ray.get_actor(f"{self.key}/{LEADER}", namespace=NAMESPACE)
                    who = self.ray.get(old.asked.remote(), timeout=5)
                raise AbortedError(f"this run is driven by {who} already; end that one first, then resume") from None
            except self.ray.exceptions.GetTimeoutError:
                raise TrainerError("the Ray cluster starts no process within 120 s; look at `ray status`") from None
            except self.ray.exceptions.RayActorError as e:
                raise self._refusal(e) from e

    def _needs(self) -> dict[str, float]:
        """Resources of one process of a trial."""
        o = self.options
        needs = {"CPU": o.cpus, "GPU": o.gpus, "memory": o.memory or 0.0, **o.resources}
        return {k: v for k, v in needs.items() if v}

    def _per_node(self) -> list[int]:
        """Processes of trials that each node holds."""
        needs = self._needs() or {"CPU": 1.0}
        nodes = [n["Resources"] for n in self.ray.nodes() if n["Alive"]]
        return [min(int(have.get(k, 0.0) / v + 1e-9) for k, v in needs.items()) for have in nodes]

    def _check_room(self) -> None:
        o = self.options
        if sum(self._per_node()) >= o.workers_per_trial:
            return
        have = self.ray.cluster_resources()
        asked = ", ".join(f"{v:g} {k}" for k, v in self._needs().items())
        times = f"{o.workers_per_trial} times " if o.workers_per_trial > 1 else ""
        said = ", ".join(f"{v:g} {k}" for k, v in sorted(have.items()) if k in ("CPU", "GPU", "memory", *o.resources))
        raise ConfigError(
            f"no node of the cluster holds a trial: it needs {times}{asked}; "
            f"the whole cluster has {said or 'nothing'}; change executor.options, add nodes, "
            "or set executor.options.autoscaling=true where they come on demand"
        )

    def slots(self) -> int:
        return sum(self._per_node()) // self.options.workers_per_trial

    # keepers ----------------------------------------------------------------------------------------------------------

    def _name(self, trial: str, attempt: int) -> str:
        return f"{self.key}/{trial}/a{attempt}"

    def alive(self) -> dict[str, list[int]]:
        out: dict[str, list[int]] = {}
        for row in self.ray.util.list_named_actors(all_namespaces=True):
            name = row["name"]
            if row["namespace"] != NAMESPACE or not name.startswith(f"{self.key}/") or name.endswith(f"/{LEADER}"):
                continue
            trial, _, attempt = name.removeprefix(f"{self.key}/").rpartition("/a")
            out.setdefault(trial, []).append(int(attempt))
        return out

    def submit(self, job: Job) -> None:
        o = self.options
        several = o.workers_per_trial > 1
        options: dict[str, Any] = {
            "name": self._name(job.trial, job.attempt),
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "max_restarts": 0,
            "max_concurrency": 8,
            "num_cpus": 0 if several else o.cpus,
            "num_gpus": 0 if several else o.gpus,
        }
        if o.memory and not several:
            options["memory"] = int(o.memory)
        if o.resources and not several:
            options["resources"] = o.resources
        if o.runtime_env:
            options["runtime_env"] = o.runtime_env
        try:
            handle = self.ray.remote(RayKeeper).options(**options).remote(job.pack())
        except ValueError as e:
            if not self.attach(job.trial, job.attempt):  # its name is taken: it was submitted before
                raise ConfigError(f"executor.options: {_line(e)}") from e
            return
        self._watch(Watched(job.trial, job.attempt, handle))

    def attach(self, trial: str, attempt: int) -> bool:
        try:
            handle = self.ray.get_actor(self._name(trial, attempt), namespace=NAMESPACE)
        except ValueError:
            return False
        self._watch(Watched(trial, attempt, handle))
        return True

    def _watch(self, w: Watched) -> None:
        self.watched[w.trial, w.attempt] = w
        interval = len(self.watched) / A_SECOND
        wait = min(max(WATCH_S, interval), self.options.lease_s / 2)
        self.open_questions[w.handle.watch.remote(w.seen, wait, min(interval, wait / 2))] = w

    def poll(self, wait_s: float) -> list[Report | Lost]:
        now = time.monotonic()
        due = [w for at, w in self.later if at <= now]
        self.later = [(at, w) for at, w in self.later if at > now]
        for w in due:
            if (w.trial, w.attempt) in self.watched:
                self._watch(w)
        self._reap(0.0)
        if not self.open_questions:
            time.sleep(wait_s)
            return []
        asked = list(self.open_questions)
        self.ray.wait(asked, num_returns=1, timeout=wait_s)
        ready, _ = self.ray.wait(asked, num_returns=len(asked), timeout=0)
        return [r for ref in ready if (r := self._answer(ref)) is not None]

    def _answer(self, ref: Any) -> Report | Lost | None:
        e = self.ray.exceptions
        w = self.open_questions.pop(ref)
        if self.watched.get((w.trial, w.attempt)) is not w:
            return None  # ended meanwhile
        try:
            report = Report(**self.ray.get(ref))
        except e.ActorUnavailableError:
            self.later.append((time.monotonic() + RETRY_S, w))
            return None
        except e.RuntimeEnvSetupError as err:
            raise ConfigError(f"executor.options.runtime_env cannot be set up: {_line(err)}") from err
        except e.ActorUnschedulableError as err:
            raise ConfigError(
                f"the cluster cannot place trial {w.trial}: {_line(err)}; change executor.options"
            ) from err
        except e.RayTaskError as err:
            raise TrainerError(f"trial {w.trial}: its keeper failed: {_line(err)}") from err
        except e.RayActorError as err:
            if isinstance(refused := self._refusal(err), ConfigError):
                raise refused from err
            return Lost(w.trial, w.attempt, self._cause(err))
        except e.RayError as err:  # the object, its owner or its node is gone
            return Lost(w.trial, w.attempt, _line(err))
        changed, w.seen, w.state = report.number != w.seen, report.number, report.state
        if report.state not in ENDED:
            self._watch(w)
        return report if changed else None

    def _refusal(self, error: Exception) -> ConfigError | TrainerError:
        """What an actor that never began tells of its node."""
        text = str(error)
        if "ModuleNotFoundError" in text or "ImportError" in text:
            missing = next((s.strip() for s in reversed(text.splitlines()) if "No module named" in s), _line(error))
            return ConfigError(
                f"a node cannot load EvoTrainer: {missing}; install the driver's version on every node, or give "
                "executor.options.runtime_env"
            )
        return TrainerError(
            f"the Ray cluster lost a process of the run: {_line(error)}; look at `ray status`, then resume"
        )

    def _cause(self, error: Exception) -> str:
        text = " ".join(str(error).split())
        lower = text.lower()
        if "memory" in lower and ("oom" in lower or "running low" in lower or "out of memory" in lower):
            return f"its node ran out of memory: {text[:300]}"
        if "node" in lower and ("died" in lower or "dead" in lower):
            return f"its node was lost: {text[:300]}"
        return f"its process on the node was lost: {text[:300]}"

    def end(self, trial: str, attempt: int) -> None:
        w = self.watched.pop((trial, attempt), None)
        handle = w.handle if w else None
        if handle is None:
            with contextlib.suppress(ValueError):
                handle = self.ray.get_actor(self._name(trial, attempt), namespace=NAMESPACE)
        if handle is None:
            return
        if w is not None and w.state in ENDED:
            self._kill(handle)
        else:  # let it clear its scratch folder away
            self.stopping[handle.stop.remote()] = handle

    def _reap(self, wait_s: float) -> None:
        if self.stopping:
            asked = list(self.stopping)
            ready, _ = self.ray.wait(asked, num_returns=len(asked), timeout=wait_s)
            for ref in ready:
                self._kill(self.stopping.pop(ref))

    def _kill(self, handle: Any) -> None:
        with contextlib.suppress(Exception):  # it is gone already
            self.ray.kill(handle, no_restart=True)

    def close(self) -> None:
        """Give keepers that were told to stop a moment, then leave."""
        with contextlib.suppress(Exception):
            self._reap(STOP_S)
            for handle in self.stopping.values():
                self._kill(handle)
        self.stopping.clear()
        self.watched.clear()
        self.open_questions.clear()
        with contextlib.suppress(Exception):
            self._kill(self.leader)
        if self.started:
            self.ray.shutdown()
            self.started = False


# data-parallel trials -------------------------------------------------------------------------------------------------

CODE = "group-code"
"""In a trial's folder: exit code of the first process of a group that failed by itself."""
TICK_S = 2.0
COLLECTIVE_S = 1800
"""Longest wait of one process for the others."""
COLLECTIVE = re.compile(r"gloo|nccl|connection (closed|reset) by peer|broken pipe", re.IGNORECASE)


def lead(argv: Sequence[str]) -> int:
    """`python -m evotrainer.executors.ray.executor TRIAL_DIR PARENT ADDRESS`, the job on stdin: train by several,
    then finish.

    Exit codes are those of `executors.worker`; a group that lost a process ends itself by SIGKILL:
    its keeper's driver tries it again.
    """
    folder, job = Path(argv[0]), Job.unpack(json.loads(sys.stdin.read()))
    die_with_parent(int(argv[1]))
    ray = import_ray()
    variables = {**job.runtime_env.get("env_vars", {}), **job.env, "OMP_NUM_THREADS": str(job.threads)}
    ray.init(
        address=argv[2],
        namespace=NAMESPACE,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={**job.runtime_env, "env_vars": variables},
    )
    code = _train_group(job, folder)
    if code == 0:
        needs = {k: v for k, v in job.resources.items() if k not in ("CPU", "GPU")}
        task = ray.remote(_finish).options(
            num_cpus=job.resources.get("CPU", 0), num_gpus=job.resources.get("GPU", 0), resources=needs, max_retries=0
        )
        try:
            code = ray.get(task.remote(str(folder), job.threads, job.env))
        except ray.exceptions.RayError as e:
            print(_line(e), flush=True)
            code = -signal.SIGKILL
    if code < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return int(code)


def _train_group(job: Job, folder: Path) -> int:
    """The training by Ray Train; 0, the code of the process that failed, or -9 where one was lost."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    (folder / CODE).unlink(missing_ok=True)
    storage = folder / "ray-train"
    trainer = TorchTrainer(
        _rank,
        train_loop_config={"folder": str(folder), "threads": job.threads},
        scaling_config=ScalingConfig(
            num_workers=job.workers, use_gpu=bool(job.resources.get("GPU")), resources_per_worker=dict(job.resources)
        ),
        torch_config=TorchConfig(timeout_s=COLLECTIVE_S),
        run_config=RunConfig(
            name=f"{job.trial}-a{job.attempt}", storage_path=str(storage), failure_config=FailureConfig(max_failures=0)
        ),
    )
    try:
        trainer.fit()
        return 0
    except Exception as e:  # Ray Train's own errors; whose fault it was stands in the folder
        print(_line(e), flush=True)
        with contextlib.suppress(OSError, ValueError):
            return int((folder / CODE).read_text(encoding="utf-8"))
        return -signal.SIGKILL
    finally:
        shutil.rmtree(storage, ignore_errors=True)


def _rank(config: Mapping[str, Any]) -> None:
    """One process of the group. The first one to fail by its own fault leaves its exit code."""
    import torch
    from ray.train import get_context

    rank, folder = get_context().get_world_rank(), Path(config["folder"])
    torch.set_num_threads(config["threads"])
    try:
        if rank == 0:
            code = guarded(folder, lambda f: TrialProcess(f).train_only())
        else:
            code = _assist(folder, rank)
    except Exception as e:
        if _lost_peer(e):
            raise
        with open(folder / "log.txt", "a", encoding="utf-8") as log:
            traceback.print_exc(file=log)
        code = 1
    if code:
        if not (folder / CODE).exists():
            write_atomic(folder / CODE, str(code))
        raise TrainerError(f"process {rank} of trial {folder.name} ended with exit code {code}")


def _assist(folder: Path, rank: int) -> int:
    note = folder / f"{BESIDE}{rank}"
    earlier = float(note.read_text(encoding="utf-8")) if note.is_file() else 0.0
    clock, over = Clock(earlier), threading.Event()

    def tick() -> None:
        while True:
            last = over.wait(TICK_S)
            with contextlib.suppress(StoreError):
                write_atomic(note, f"{clock.cpu_s():.3f}", durable=False)
            if last:
                return

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        TrialProcess(folder).assist()
    except EvoTrainerError as e:
        tell(folder, e)
        return e.exit_code
    finally:
        over.set()
        thread.join()
    return 0


def _lost_peer(e: BaseException) -> bool:
    """True where a collective failed: another process is gone, or failed first."""
    frames = traceback.extract_tb(e.__traceback__)
    return bool(COLLECTIVE.search(str(e))) or any("/torch/distributed/" in f.filename for f in frames)


def _finish(folder: str, threads: int, env: Mapping[str, str]) -> int:
    """What follows the training, in one process with the resources of one."""
    path = Path(folder)
    local = LocalExecutor(path.parent.parent, workers=1, restarts=0)
    r = local.start(read_spec(path), threads=threads, env=env)
    try:
        while r.process.poll() is None:
            if local.overdue(r):
                local.collect(r)  # writes its failure
                return 0
            time.sleep(LOOK_S)
        return int(r.process.returncode)
    finally:
        end(r.process)


def _line(e: BaseException) -> str:
    return " ".join(str(e).split())[:400] or type(e).__name__


__all__ = ["RayBackend", "RayKeeper", "import_ray"]

if __name__ == "__main__":
    from evotrainer.executors.ray.executor import (
        lead as _lead,
    )  # so that workers find its functions in this module, not in __main__

    raise SystemExit(_lead(sys.argv[1:]))

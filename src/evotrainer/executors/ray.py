"""Ray as the cluster of `executors.cluster`: one detached, named actor for each attempt, one leader for each run.

An attempt's actor outlives its driver: it is `<key>/<trial>/a<attempt>` in the namespace `evotrainer`, and the next driver of
the run finds it there. The leader dies with its driver, which frees its name for the next one. Ray is imported in functions.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evotrainer.config import default_workers
from evotrainer.errors import AbortedError, ConfigError, MissingDependencyError, TrainerError
from evotrainer.executors.cluster import ClusterOptions, Lost
from evotrainer.executors.keeper import ENDED, Job, Keeper, Report

NAMESPACE = "evotrainer"
LEADER = "leader"
WATCH_S = 10.0
"""Longest time one question to a keeper stays open."""
A_SECOND = 300
"""Signs of life taken in a second; where more trials run, each is heard less often."""
RETRY_S = 2.0
"""Wait before a keeper that cannot be reached is asked again; Ray says in the end whether it is gone."""
TAKEOVER_S, TAKEOVER_CLIENT_S = 20.0, 60.0
"""How long a new driver waits for the old one's leader to go: Ray notices a dead driver at once, a client's after 30 s."""
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
        super().__init__(job)

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
    """Keepers as Ray actors."""

    def __init__(self) -> None:
        self.watched: dict[tuple[str, int], Watched] = {}
        self.open_questions: dict[Any, Watched] = {}
        self.later: list[tuple[float, Watched]] = []
        self.stopping: dict[Any, Any] = {}
        self.started = False

    # the cluster ------------------------------------------------------------------------------------------------------

    def open(self, key: str, options: ClusterOptions) -> None:
        self.ray = import_ray()
        self.key, self.options = key, options
        if not self.ray.is_initialized():
            self._connect()
            self.started = True
        try:
            self._lead()
            if not options.autoscaling:
                self._check_room()
        except BaseException:
            self.close()
            raise

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
            self.ray.init(**known)
        except (ConnectionError, TimeoutError) as e:
            raise TrainerError(
                f"no Ray cluster at {address}: {_line(e)}; start one (`ray start --head`), or give executor.options.address"
            ) from e
        except (RuntimeError, ValueError) as e:  # among them other versions of Ray or Python than the cluster's
            raise ConfigError(f"cannot join the Ray cluster at {address or 'this machine'}: {_line(e)}") from e

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
            f"no node of the cluster holds a trial: it needs {times}{asked}; the whole cluster has {said or 'nothing'}; change "
            "executor.options, add nodes, or set executor.options.autoscaling=true where they come on demand"
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


def _line(e: BaseException) -> str:
    return " ".join(str(e).split())[:400] or type(e).__name__


__all__ = ["RayBackend", "RayKeeper", "import_ray"]

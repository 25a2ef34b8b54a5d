"""Joining a Ray cluster: one driver for each run, and what of the cluster its trials may have.
Ray is imported in functions."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any

from evotrainer.config.task import default_workers
from evotrainer.errors import AbortedError, ConfigError, MissingDependencyError, TrainerError, install
from evotrainer.executors.ray.options import ClusterOptions, with_gpus
from evotrainer.records.text import cut

NAMESPACE = "evotrainer"
LEADER = "leader"
RETRY_S = 2.0
"""Wait before a supervisor that cannot be reached is asked again; Ray says in the end whether it is gone."""
TAKEOVER_S, TAKEOVER_CLIENT_S = 20.0, 60.0
"""How long a new driver waits for the old one's leader to go: Ray notices a dead driver at once,
a client's after 30 s."""
TRIES = 3
"""Tries to reach a cluster from outside, or to start one on a busy machine."""


def import_ray() -> Any:
    """Ray; MissingDependencyError where it is not installed."""
    try:
        import ray
    except ImportError:
        raise MissingDependencyError(
            f"executor.name=ray needs Ray, which is not installed; run: {install('ray')}"
        ) from None
    return ray


class Leader:
    """Holds the run's name while its driver lives."""

    def __init__(self, who: str) -> None:
        self.who = who

    def asked(self) -> str:
        return self.who


class RayConnection:
    """This driver in a cluster, as the one that leads the run of `key`. `options`: those that apply."""

    def __init__(self, key: str, options: ClusterOptions, wants_gpu: bool) -> None:
        """EvoTrainerError where the cluster is not there, is led by another driver, or holds no trial."""
        self.ray = import_ray()
        self.key, self.options = key, options
        self.started = False
        self.leader: Any = None
        if not self.ray.is_initialized():
            self._connect()
            self.started = True
        try:
            self.options = with_gpus(options, wants_gpu, float(self.ray.cluster_resources().get("GPU", 0.0)))
            self._lead()
            if not options.autoscaling:
                self._check_room()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the leader's name, and leave a cluster that was joined here."""
        with contextlib.suppress(Exception):  # it is gone already
            self.ray.kill(self.leader, no_restart=True)
        if self.started:
            self.ray.shutdown()
            self.started = False

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
            self._init(known, 1 if address and not str(address).startswith(("ray://", "local")) else TRIES)
        except (ConnectionError, TimeoutError) as e:
            raise TrainerError(
                f"no Ray cluster at {address or 'this machine'}: {line_of(e)}; start one (`ray start --head`), "
                "or give executor.options.address"
            ) from e
        except (RuntimeError, ValueError) as e:  # among them other versions of Ray or Python than the cluster's
            raise ConfigError(f"cannot join the Ray cluster at {address or 'this machine'}: {line_of(e)}") from e

    def _init(self, options: dict[str, Any], tries: int) -> None:
        """`ray.init`; a busy head may need longer for a client's server than Ray waits, and so may a node's start."""
        for left in reversed(range(tries)):
            try:
                self.ray.init(**options)
                return
            except Exception as e:
                slow = "timed out during startup" in str(e)  # of no class of its own
                if not isinstance(e, ConnectionError) and not slow:
                    raise
                if slow:
                    self.ray.shutdown()
                if not left:
                    raise ConnectionError(str(e)) from e
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
                raise refusal(e) from e

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
        available = ", ".join(
            f"{v:g} {k}" for k, v in sorted(have.items()) if k in ("CPU", "GPU", "memory", *o.resources)
        )
        raise ConfigError(
            f"no node of the cluster holds a trial: it needs {times}{asked}; "
            f"the whole cluster has {available or 'nothing'}; change executor.options, add nodes, "
            "or set executor.options.autoscaling=true where they come on demand"
        )

    def slots(self) -> int:
        return sum(self._per_node()) // self.options.workers_per_trial


def refusal(error: Exception) -> ConfigError | TrainerError:
    """What an actor that never began tells of its node."""
    text = str(error)
    if "ModuleNotFoundError" in text or "ImportError" in text:
        missing = next((s.strip() for s in reversed(text.splitlines()) if "No module named" in s), line_of(error))
        return ConfigError(
            f"a node cannot load EvoTrainer: {missing}; install the driver's version on every node, or give "
            "executor.options.runtime_env"
        )
    return TrainerError(
        f"the Ray cluster lost a process of the run: {line_of(error)}; look at `ray status`, then resume"
    )


def line_of(e: BaseException) -> str:
    """An error in one line."""
    return cut(" ".join(str(e).split()), 400) or type(e).__name__

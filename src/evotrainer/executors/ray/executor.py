"""Ray as the cluster of `driver.py`: one detached, named actor for each attempt, one leader for each run.

An attempt's actor outlives its driver: it is `<key>/<trial>/a<attempt>` in the namespace `evotrainer`, and the next
driver of the run finds it there. The leader dies with its driver, which frees its name for the next one. Ray is
imported in functions.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError, TrainerError
from evotrainer.executors.ray.backend import SupervisorLost
from evotrainer.executors.ray.connection import LEADER, NAMESPACE, RETRY_S, RayConnection, line_of, refusal
from evotrainer.executors.ray.job import ENDED, NodeJob, Report
from evotrainer.executors.ray.options import ClusterOptions
from evotrainer.executors.ray.supervisor import NodeSupervisor
from evotrainer.records.text import cut

WATCH_S = 10.0
"""Longest time that one request to a supervisor stays open."""
A_SECOND = 300
"""Heartbeats taken per second; where more trials run, each is asked less often."""
STOP_S = 15.0
"""Time that supervisors have for ending their trials when the driver leaves."""


class RaySupervisor(NodeSupervisor):
    """A supervisor in its actor."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        import ray

        os.environ["EVOTRAINER_NODE_IP"] = ray.util.get_node_ip_address()
        super().__init__(job, self._group)

    def _group(self, job: NodeJob, folder: Path) -> subprocess.Popen[bytes]:
        """The process that leads a data-parallel trial, as a Ray job of its own: what it started dies with it."""
        import ray

        command = [sys.executable, "-m", "evotrainer.executors.ray.group", str(folder), str(os.getpid())]
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
class WatchedTrial:
    trial: str
    attempt: int
    handle: Any
    seen: int = -1
    state: str = ""


class RayBackend:
    """Supervisors as Ray actors. `wants_gpu`: the trainer takes a GPU where it sees one."""

    def __init__(self, wants_gpu: bool = False) -> None:
        self.wants_gpu = wants_gpu
        self.watched: dict[tuple[str, int], WatchedTrial] = {}
        self.open_questions: dict[Any, WatchedTrial] = {}
        self.later: list[tuple[float, WatchedTrial]] = []
        self.stopping: dict[Any, Any] = {}

    def open(self, key: str, options: ClusterOptions) -> ClusterOptions:
        self.connection = RayConnection(key, options, self.wants_gpu)
        self.ray, self.key, self.options = self.connection.ray, key, self.connection.options
        return self.options

    def slots(self) -> int:
        return self.connection.slots()

    # supervisors ------------------------------------------------------------------------------------------------------

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

    def submit(self, job: NodeJob) -> None:
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
            handle = self.ray.remote(RaySupervisor).options(**options).remote(job.pack())
        except ValueError as e:
            if not self.attach(job.trial, job.attempt):  # its name is taken: it was submitted before
                raise ConfigError(f"executor.options: {line_of(e)}") from e
            return
        self._watch(WatchedTrial(job.trial, job.attempt, handle))

    def attach(self, trial: str, attempt: int) -> bool:
        try:
            handle = self.ray.get_actor(self._name(trial, attempt), namespace=NAMESPACE)
        except ValueError:
            return False
        self._watch(WatchedTrial(trial, attempt, handle))
        return True

    def _watch(self, w: WatchedTrial) -> None:
        self.watched[w.trial, w.attempt] = w
        interval = len(self.watched) / A_SECOND
        wait = min(max(WATCH_S, interval), self.options.lease_s / 2)
        self.open_questions[w.handle.watch.remote(w.seen, wait, min(interval, wait / 2))] = w

    def poll(self, wait_s: float) -> list[Report | SupervisorLost]:
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

    def _answer(self, ref: Any) -> Report | SupervisorLost | None:
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
            raise ConfigError(f"executor.options.runtime_env cannot be set up: {line_of(err)}") from err
        except e.ActorUnschedulableError as err:
            raise ConfigError(
                f"the cluster cannot place trial {w.trial}: {line_of(err)}; change executor.options"
            ) from err
        except e.RayTaskError as err:
            raise TrainerError(f"trial {w.trial}: its supervisor failed: {line_of(err)}") from err
        except e.RayActorError as err:
            if isinstance(refused := refusal(err), ConfigError):
                raise refused from err
            return SupervisorLost(w.trial, w.attempt, _cause(err))
        except e.RayError as err:  # the object, its owner or its node is gone
            return SupervisorLost(w.trial, w.attempt, line_of(err))
        changed, w.seen, w.state = report.number != w.seen, report.number, report.state
        if report.state not in ENDED:
            self._watch(w)
        return report if changed else None

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
        """Give supervisors that were told to stop a moment, then leave."""
        with contextlib.suppress(Exception):
            self._reap(STOP_S)
            for handle in self.stopping.values():
                self._kill(handle)
        self.stopping.clear()
        self.watched.clear()
        self.open_questions.clear()
        self.connection.close()


def _cause(error: Exception) -> str:
    """What became of a supervisor, as far as Ray tells."""
    text = cut(" ".join(str(error).split()), 300)
    lower = text.lower()
    if "memory" in lower and ("oom" in lower or "running low" in lower or "out of memory" in lower):
        return f"its node ran out of memory: {text}"
    if "node" in lower and ("died" in lower or "dead" in lower):
        return f"its node was lost: {text}"
    return f"its process on the node was lost: {text}"

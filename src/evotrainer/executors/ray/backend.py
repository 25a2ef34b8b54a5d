"""What a cluster has to offer so that trials run on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from evotrainer.executors.ray.job import NodeJob, Report
from evotrainer.executors.ray.options import ClusterOptions


class Backend(Protocol):
    """A cluster."""

    def open(self, key: str, options: ClusterOptions) -> ClusterOptions:
        """Connect and become the run's only driver; EvoTrainerError where that cannot be.
        Returns the options that apply."""
        ...

    def slots(self) -> int:
        """Trials that the cluster could hold at once now."""
        ...

    def alive(self) -> dict[str, list[int]]:
        """Trial -> attempts that have a supervisor now, also from an earlier driver."""
        ...

    def submit(self, job: NodeJob) -> None:
        """Start a supervisor, as soon as there is room."""
        ...

    def attach(self, trial: str, attempt: int) -> bool:
        """Listen to a supervisor that is there; False where it is gone."""
        ...

    def poll(self, wait_s: float) -> list[Report | SupervisorLost]:
        """Reports that arrive within `wait_s`."""
        ...

    def end(self, trial: str, attempt: int) -> None:
        """Kill a supervisor and what it started; nothing where there is none."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SupervisorLost:
    """A supervisor that ended without a report: its node or process was lost, or it ran out of memory."""

    trial: str
    attempt: int
    why: str

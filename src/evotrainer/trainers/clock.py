"""CPU-seconds by phase, and the budget."""

from __future__ import annotations

import resource
import time

from evotrainer.errors import TrainerError


def cpu_now() -> float:
    """CPU-seconds of this process and its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Clock:
    """Adds the time since the last mark to a phase."""

    def __init__(self, spent: float = 0.0, budget: float | None = None) -> None:
        self.before, self.budget = spent, budget
        self.start = self.last = cpu_now()
        self.phases: dict[str, float] = {}

    def mark(self, phase: str) -> None:
        now = cpu_now()
        self.phases[phase] = self.phases.get(phase, 0.0) + now - self.last
        self.last = now

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last call."""
        out, self.phases = self.phases, {}
        return out

    @property
    def total(self) -> float:
        """All CPU-seconds of the training, those before a resume included."""
        return self.before + cpu_now() - self.start

    def check(self, step: int, steps: int) -> None:
        """TrainerError once the budget is spent."""
        if self.budget is not None and self.total > self.budget:
            raise TrainerError(
                f"CPU budget overrun: {self.total:.1f} of {self.budget:.1f} CPU-s after step {step} of {steps}; "
                "raise the trial's budget or train fewer steps"
            )

"""CPU-seconds by phase, and of a training as a whole."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

SIGN_EVERY_S = 5.0


class SignOfLife:
    """Told by trainers that long work goes on: `give`, as often as they like. `sign`: what is called then, at most
    every SIGN_EVERY_S seconds of wall-clock time; nothing where nobody set it."""

    def __init__(self) -> None:
        self.sign: Callable[[], object] | None = None
        self._last = time.monotonic()

    def give(self) -> None:
        if self.sign is not None and (now := time.monotonic()) - self._last >= SIGN_EVERY_S:
            self._last = now
            self.sign()


LIFE = SignOfLife()


def cpu_now() -> float:
    """CPU-seconds of this process and its finished children."""
    # only children that were waited for: a sandbox that still runs is counted when it ends
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class PhaseTimer:
    """Adds the time since the last mark to a phase."""

    def __init__(self) -> None:
        self.before = 0.0
        """CPU-seconds of this training before a resume."""
        self.start = self.last = cpu_now()
        self.phases: dict[str, float] = {}

    def resume(self, before: float) -> None:
        """Go on after an interruption: what it cost to come back to the checkpoint is no part of the training, or a
        killed one would look dearer than its control (`judge.max_cost`)."""
        self.before = before
        self.start = self.last = cpu_now()

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

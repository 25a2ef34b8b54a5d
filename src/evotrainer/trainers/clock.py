"""CPU-seconds by phase, and of a training as a whole; and how fast the machine was meanwhile."""

from __future__ import annotations

import resource
import time
from functools import cache
from typing import Any


def cpu_now() -> float:
    """CPU-seconds of this process and its finished children."""
    # only children that were waited for: a sandbox that still runs is counted when it ends
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@cache
def _matrix() -> Any:
    import torch

    x = torch.full((128, 128), 1 / 128)
    return x @ x  # the first product sets up the library, which takes longer than all later ones


def fixed_work() -> None:
    """Half a millisecond of what a training of a small policy does: matrix products, and an interpreter's steps."""
    x = _matrix()
    for _ in range(8):
        x = x @ x  # of equal rows that add up to 1: it stays as it is
    total = 0
    for i in range(6000):
        total += i


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

    def pace(self) -> dict[str, float]:
        """`cpu_pace_s`: CPU-seconds of a fixed piece of work, now; they are no part of the training.

        A processor that does other work beside it does less in each of a thread's seconds, so that trainings of
        different hours compare only by such pieces of work. Empty where a second is not one thread's: with several
        threads, which are counted while they wait for one another, and on GPUs.
        """
        import torch

        if torch.get_num_threads() > 1 or torch.cuda.is_initialized():
            return {}
        opened = cpu_now()
        _matrix()
        began = cpu_now()
        fixed_work()
        ended = cpu_now()
        self.start += ended - opened
        self.last += ended - opened
        return {"cpu_pace_s": ended - began}

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

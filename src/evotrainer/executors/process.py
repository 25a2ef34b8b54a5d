"""Helpers of a supervised process: it dies with its parent, locks its folder, counts its CPU time."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from evotrainer.records.clock import Silence as Silence
from evotrainer.records.processes import descendants_cpu_s as descendants_cpu_s
from evotrainer.records.regular_file import read_text

PR_SET_PDEATHSIG = 1
BESIDE = "cpu-"
"""Beginning of the names of files in which data-parallel processes but the first note their CPU-seconds."""
EXIT_BUSY = 17
"""Another process works on this trial."""


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill us when `parent` dies; exit at once if it is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        os._exit(EXIT_BUSY)


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[bool]:
    """Exclusive lock on a trial's folder, released by the kernel when the process ends; yields False if held."""
    with open(folder / "lock", "a") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


class ProcessCpuClock:
    """CPU-seconds of this process and of all below it (the sandbox's included), plus those of earlier attempts."""

    def __init__(self, earlier: float, folder: Path | None = None) -> None:
        """`folder`: of a trial, where other processes of a data-parallel training note what they use."""
        self.folder = folder
        self.earlier = earlier - self.other_processes()
        self.below = 0.0

    def other_processes(self) -> float:
        """CPU-seconds of the other data-parallel processes, of all attempts."""
        total = 0.0
        for p in self.folder.glob(f"{BESIDE}*") if self.folder else ():
            with contextlib.suppress(OSError, ValueError):
                total += float(read_text(p))
        return total

    def cpu_s(self) -> float:
        own, kids = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        # Live descendants are not in RUSAGE_CHILDREN yet; one that ended unseen must not turn the clock back.
        self.below = max(self.below, kids.ru_utime + kids.ru_stime + descendants_cpu_s(os.getpid()))
        return self.earlier + own.ru_utime + own.ru_stime + self.below + self.other_processes()


def leave(code: int) -> NoReturn:
    """End a process whose work is done and durable;
    taking PyTorch down in order would cost 0.5 to 0.8 CPU-s a trial."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

"""`executors.process`: what a trial's process costs is counted, whoever spends it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evotrainer.executors.process import ProcessCpuClock, descendants_cpu_s

BURN = "import time\nt = time.process_time()\nwhile time.process_time() - t < 0.4: pass\n"


def test_cpu_of_live_descendants_is_counted_and_never_taken_back() -> None:
    clock = ProcessCpuClock(earlier=5.0)
    nested = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}]); print(flush=True); sys.stdin.read()"
    )
    p = subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert p.stdout is not None
    p.stdout.readline()
    assert descendants_cpu_s(os.getpid()) >= 0.35, "a grandchild that its parent reaped is in the sum"
    during = clock.cpu_s()
    assert during >= 5.35
    p.communicate()
    time.sleep(0.01)
    assert clock.cpu_s() >= during


def test_a_process_that_ends_while_it_is_counted_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """`/proc/PID/stat` of a process that ends in that moment answers ESRCH, to whoever asks: stat, open or read."""
    gone, stat = ProcessLookupError(errno.ESRCH, "No such process"), os.stat

    def vanished(path: Any, **options: Any) -> os.stat_result:
        if str(path).startswith("/proc/") and str(path).endswith("/stat"):
            raise gone
        return stat(path, **options)

    def unread(self: Path, **options: Any) -> str:
        raise gone

    monkeypatch.setattr(os, "stat", vanished)
    before = descendants_cpu_s(os.getpid(), itself=True)
    monkeypatch.setattr(Path, "read_text", unread)
    assert before > 0 and descendants_cpu_s(os.getpid(), itself=True) == 0

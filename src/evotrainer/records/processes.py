"""Processes: the CPU-seconds of those below one, those that are known by a mark in their environment, and the memory
that is left for more."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from evotrainer.records.regular_file import read_text


def end_marked(name: str, token: str) -> None:
    """End whatever has the variable `name=token` in its environment, as a process in a session of its own keeps it."""
    for _ in range(100):  # what is being ended may have started another
        if not sum(_ended(int(at.name), f"{name}={token}".encode()) for at in Path("/proc").glob("[0-9]*")):
            return
        time.sleep(0.01)


def _ended(pid: int, mark: bytes) -> bool:
    """Was this a process with the mark? It is ended. By a handle: its number may be another's by then."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                return True
        finally:
            os.close(handle)
    return False


def descendants_cpu_s(pid: int, *, itself: bool = False) -> float:
    """CPU-seconds of the live descendants of a process (and its own) and of what they reaped; 0 without /proc."""
    rows: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit():
            continue
        try:
            # no glob: it asks whether each file is there, and raises where its process ends in that moment
            text = Path(f"/proc/{name}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        fields = text[text.rindex(")") + 2 :].split()
        rows[int(text.split(" ", 1)[0])] = (int(fields[1]), sum(int(x) for x in fields[11:15]))
    children: dict[int, list[int]] = {}
    for child, (parent, _) in rows.items():
        children.setdefault(parent, []).append(child)
    ticks, todo = 0, [pid] if itself and pid in rows else list(children.get(pid, []))
    while todo:
        p = todo.pop()
        ticks += rows[p][1]
        todo += children.get(p, [])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_free(root: Path = Path("/")) -> int | None:
    """Bytes that programs may still take: of the machine, or of the control group at the root; None: not known."""
    try:
        lines = read_text(root / "proc/meminfo").splitlines()
    except OSError:
        return None
    found = [int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable:")]
    group = root / "sys/fs/cgroup"
    try:
        # what programs hold; the rest of memory.current is cache, which gives way
        held = sum(int(x.split()[1]) for x in read_text(group / "memory.stat").splitlines() if x.startswith("anon "))
        found.append(int(read_text(group / "memory.max")) - held)
    except (OSError, ValueError):  # no such group, or `max`
        pass
    return min(found, default=None)

"""Keeps a user's command: a process of its own between a trial and what the trial's command starts.

`python keeper.py`, its order as JSON on stdin. It dies with the trial that started it and takes all below it along:
what the command started, too, also in sessions of its own (it is the subreaper of all of them). It copies what they
print into a file of bounded size, and writes how it went. It imports nothing of ours: it starts in 20 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TICK_S = 0.1


def prctl(what: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(what, value)


def below(pid: int) -> list[int]:
    """Processes below one, those of other sessions included; without /proc none is known."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                stat = Path(f"/proc/{name}/stat").read_text(encoding="utf-8", errors="replace")
                state, parent = stat[stat.rindex(")") + 2 :].split()[:2]
                if state != "Z":
                    parents[int(name)] = int(parent)
    found, todo = [], [pid]
    while todo:
        children = [p for p, parent in parents.items() if parent == todo[-1]]
        todo.pop()
        found += children
        todo += children
    return found


class BoundedLog:
    """The first and the last `most` bytes of what is written, in a file; what is left out is counted."""

    def __init__(self, path: Path, most: int) -> None:
        self.most, self.size = most, 0
        self.head = open(path, "wb")  # noqa: SIM115
        self.end_path = path.with_name(path.name + ".end")
        self.end = bytearray()
        self.shown = 0.0

    def write(self, data: bytes) -> None:
        room = max(0, self.most - self.size)
        self.size += len(data)
        try:
            if room:
                self.head.write(data[:room])
                self.head.flush()
            self.end += data[room:]
            del self.end[: max(0, len(self.end) - self.most)]
            if self.end and time.monotonic() - self.shown > 1:
                self.end_path.write_bytes(self.end)
                self.shown = time.monotonic()
        except OSError:  # a full disk: the command goes on, its words are lost
            self.size = max(self.size, self.most)

    def close(self) -> None:
        left = self.size - self.most - len(self.end)
        with contextlib.suppress(OSError):
            self.head.write(f"\n[{left:,} bytes are left out]\n".encode() * (left > 0) + self.end)
            self.head.close()
            self.end_path.unlink(missing_ok=True)


class Keeper:
    """One command from its start until nothing below this process is left."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.stopped = False
        self.status: int | None = None
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)

    def stop(self, *_: object) -> None:
        self.stopped = True

    def run(self) -> None:
        order = self.order
        log = BoundedLog(Path(order["log"]), order["most"])
        try:
            child = subprocess.Popen(
                order["argv"],
                cwd=order["cwd"],
                env=order["env"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        except OSError as e:
            self.tell({"cause": f"cannot start {order['argv'][0]}: {e.strerror}"})
            return
        assert child.stdout is not None
        pipe = child.stdout.fileno()
        os.set_blocking(pipe, False)
        while self.status is None and not self.stopped:
            self.listen(pipe, log, TICK_S)
            self.reap(child.pid)
        left = below(os.getpid()) if self.status is not None else []
        self.end_all(child.pid, pipe, log)
        while self.listen(pipe, log, 0):
            pass
        log.close()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = used.ru_utime + used.ru_stime
        self.tell({"status": self.status, "cpu_s": cpu_s, "left": len(left), "bytes": log.size})

    def listen(self, pipe: int, log: BoundedLog, seconds: float) -> bool:
        """Copy what was printed; False where there was nothing."""
        if not select.select([pipe], [], [], seconds)[0]:
            return False
        try:
            data = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return False
        if not data:  # everybody has closed it
            time.sleep(seconds)
            return False
        log.write(data)
        return True

    def reap(self, child: int) -> None:
        """Take up the ends of the command and of orphans below it."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid == child:
                    self.status = os.waitstatus_to_exitcode(status)

    def end_all(self, child: int, pipe: int, log: BoundedLog) -> None:
        """End all below: first asked to, then killed."""
        asked = time.monotonic()
        for how, until in ((signal.SIGTERM, asked + self.order["grace_s"]), (signal.SIGKILL, asked + 600)):
            told = False
            while found := below(os.getpid()):
                if not told or how == signal.SIGKILL:  # what is being killed may have started another
                    for pid in found:
                        with contextlib.suppress(OSError):
                            os.kill(pid, how)
                    told = True
                self.listen(pipe, log, 0.02)
                self.reap(child)
                if time.monotonic() > until:
                    break
        self.reap(child)

    def tell(self, what: dict[str, Any]) -> None:
        at = Path(self.order["ended"])
        with contextlib.suppress(OSError):
            at.with_name(at.name + ".tmp").write_text(json.dumps({"stopped": self.stopped, **what}))
            os.replace(at.with_name(at.name + ".tmp"), at)


if __name__ == "__main__":
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    given = json.load(sys.stdin)
    if os.getppid() == given["parent"]:
        Keeper(given).run()

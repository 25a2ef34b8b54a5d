"""A process of ours that works beside a run, so that nothing it does can stop or change the run.

It gets its orders as one line of JSON on its standard input, whose end is the run's; what it has to say is a line of
JSON on its standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any


class Follower:
    """A module at work in a process of its own; `problem`: why it could not be started."""

    def __init__(self, module: str, orders: Mapping[str, Any], take: Callable[[dict[str, Any]], None]) -> None:
        """`take`: called by `listen` with each message of the process."""
        self._take, self._tail, self.problem = take, b"", ""
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=dict(os.environ, OMP_NUM_THREADS="1", POLARS_MAX_THREADS="1"),
                start_new_session=True,
            )
        except OSError as e:
            self.problem = str(e)
            return
        self.tell(orders)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)  # the run never waits for it

    def tell(self, message: Mapping[str, Any]) -> None:
        """Pass a line on, where it can be."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(json.dumps(message).encode() + b"\n")
                self._process.stdin.flush()

    def listen(self, wait_s: float = 0.0) -> bool:
        """Take what the process said; False once it has ended."""
        if self._process is None or self._process.stdout is None:
            return False
        fd = self._process.stdout.fileno()
        while select.select([fd], [], [], wait_s)[0]:
            more = os.read(fd, 1 << 16)
            if not more:
                return False
            *lines, self._tail = (self._tail + more).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            wait_s = 0.0
        return True

    def end(self, last_s: float, leave: bool = False) -> bool:
        """Tell it that the run is over and give it `last_s` seconds: True where it ended by then. Otherwise it is
        killed; with `leave` it is left to end by itself, also where it only said that it has nothing more to say."""
        process = self._process
        if process is None:
            return True
        waited, slice_s, ended = 0.0, 0.5, False
        try:
            with contextlib.suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
            while waited < last_s and not (ended := not self.listen(slice_s)):
                waited += slice_s
        finally:
            if not ended and not leave:
                process.kill()
            if not leave:
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
            self._process = None
        return ended


class OrderLines:
    """JSON lines that the run tells a process of ours, as they come; `over`: it has ended."""

    def __init__(self, fd: int) -> None:
        self._fd, self._tail, self.over = fd, b"", False

    def read(self, wait_s: float) -> Iterator[dict[str, Any]]:
        """What came within `wait_s`; ends at the first that did."""
        if self.over:
            time.sleep(wait_s)
            return
        if select.select([self._fd], [], [], wait_s)[0]:
            more = os.read(self._fd, 1 << 16)
            self.over = not more
            *whole, self._tail = (self._tail + more).split(b"\n")
            for line in whole:
                with contextlib.suppress(ValueError):
                    yield json.loads(line)


def follow_run(work: Callable[[dict[str, Any], OrderLines, IO[str]], None]) -> None:
    """Do a process's work, behind the run's trials; given its orders, what the run tells later, where to answer."""
    with contextlib.suppress(OSError):
        os.nice(10)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # clients print as they like
    os.dup2(quiet, 2)
    lines = OrderLines(0)
    if (orders := next(iter(lines.read(60)), None)) is not None:
        work(orders, lines, out)


def say(out: IO[str], **message: Any) -> None:
    """Tell the run, where it is still there."""
    with contextlib.suppress(OSError, ValueError):
        out.write(json.dumps(message) + "\n")


class Listening:
    """An observer that lets a follower speak whenever the run says something."""

    def __init__(self, view: Any, listen: Callable[[str, tuple[Any, ...]], object]) -> None:
        """`listen`: called with the name and the values of each call, before the view."""
        self._view, self._listen = view, listen

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._view, name)
        if name not in ("round", "step", "opened", "trials", "finished", "verdict", "note", "budget"):
            return found

        def told(*values: Any) -> Any:
            self._listen(name, values)
            return found(*values)

        return told

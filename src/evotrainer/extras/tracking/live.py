"""The run's side of live tracking: starts the follower, passes on what it says, waits for it at the end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

LAST_S = 120.0
"""Seconds that the follower is given after the run's end; then it is ended, and `evotrainer track` does the rest."""


STOPPED_S = 10.0
"""The same where the run was stopped."""


class FollowerProcess:
    """A follower at work."""

    def __init__(
        self, folder: Path, to: tuple[str, ...], project: str, options: Mapping[str, Any], note: Callable[[str], None]
    ) -> None:
        self.folder, self.to, self._note = folder, to, note
        self._left = set(to)
        self._tail = b""
        env = dict(os.environ, OMP_NUM_THREADS="1", POLARS_MAX_THREADS="1")
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "evotrainer.extras.tracking.follower"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
            )
            orders = {"folder": str(folder), "to": list(to), "project": project, "options": dict(options)}
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(orders).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as e:
            self._warn(", ".join(to), str(e))
            self._left.clear()

    def listen(self, wait_s: float = 0.0) -> bool:
        """Pass on what the follower said; False once it has ended."""
        if self._process is None or self._process.stdout is None:
            return False
        fd = self._process.stdout.fileno()
        while select.select([fd], [], [], wait_s)[0]:
            more = os.read(fd, 1 << 16)
            if not more:
                return False
            *lines, self._tail = (self._tail + more).split(b"\n")
            for line in lines:
                self._take(line)
            wait_s = 0.0
        return True

    def _take(self, line: bytes) -> None:
        message = json.loads(line)
        if "failed" in message:
            self._left.discard(message["failed"])
            self._warn(message["failed"], message["cause"])
        elif "done" in message:
            self._left.discard(message["done"])
            self._note(f"figures exported: {message['where']}")

    def _warn(self, name: str, cause: str) -> None:
        self._note(
            f"warning: tracking to {name} failed ({cause}); the run goes on and loses nothing: "
            f"evotrainer track {self.folder} --to {name} exports it later"
        )

    def end(self, last_s: float = LAST_S) -> None:
        """Let the follower export the rest; end it where it takes longer than `last_s`."""
        process = self._process
        if process is None:
            return
        waited, slice_s = 0.0, 0.5
        try:
            with contextlib.suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
            while waited < last_s and self.listen(slice_s):
                waited += slice_s
        finally:
            if waited >= last_s or sys.exc_info()[0] is not None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
            self._process = None
        for name in sorted(self._left):
            self._warn(name, "not finished in time" if waited >= last_s else "the exporting process ended")


class _Watched:
    """An observer that also listens to the follower."""

    def __init__(self, view: Any, followed: FollowerProcess) -> None:
        self._view, self._followed = view, followed

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._view, name)
        if name not in ("round", "step", "opened", "finished", "verdict", "note", "budget"):
            return found

        def told(*values: Any) -> Any:
            self._followed.listen()
            return found(*values)

        return told


@contextlib.contextmanager
def following(folder: Path, tracking: Any, view: Any) -> Iterator[Any]:
    """The observer to run under. `tracking`: the task file's section, which names a tracker."""
    followed = FollowerProcess(folder, tracking.to, tracking.project, tracking.options, view.note)
    try:
        yield _Watched(view, followed)
    except BaseException:  # nobody who stopped a run should have to wait for a tracker
        followed.end(STOPPED_S)
        raise
    followed.end()

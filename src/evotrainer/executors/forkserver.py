"""A process that imports what every trial needs and makes its tasks once, and forks a trial's process when asked.

Importing PyTorch and generating the tasks of train and search cost 2 to 8 CPU-seconds per trial; a fork costs some
hundredths. A forked trial has its own process group, folder, lock and log, counts its own CPU time and dies with the
run. It runs the code that the fork server imported when it began. The fork server imports nothing that starts threads,
opens no sandbox and knows no seed that gate and cert are drawn from.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import traceback
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

from evotrainer.executors.process import die_with_parent, leave
from evotrainer.executors.spec import TrialSpec

MESSAGE = 1 << 16
"""Bytes of one message at most: a key and a folder's path."""
LOST = -int(signal.SIGKILL)
"""Exit code of trials whose fork server died: the kernel kills them with it."""


def can_fork(spec: TrialSpec) -> bool:
    """Whether a trial may be forked: its libraries start no threads and take no GPU before it begins."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and spec.trainer == "embedded"


def kind_of(spec: TrialSpec) -> str:
    """Equal for trials that one fork server can serve: the same imports, tasks and environment variables."""
    return json.dumps([spec.trainer, spec.environment, sorted(os.environ.items())], sort_keys=True, default=str)


class Forked:
    """A trial's process; like `subprocess.Popen` as far as trials are watched."""

    def __init__(self, forkserver: ForkServer) -> None:
        self.forkserver = forkserver
        self.pid = 0
        """0 until the fork server has forked it."""
        self.returncode: int | None = None
        """Negative: the signal that ended it."""

    def poll(self) -> int | None:
        """`returncode`, None while it runs."""
        if self.returncode is None:
            self.forkserver.listen(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended."""
        while self.returncode is None:
            self.forkserver.listen(timeout)
        return self.returncode

    def kill(self) -> None:
        """Kill its whole process group, and wait for it; with the fork server, where that has not forked it yet."""
        if self.poll() is not None:
            return
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait()
        else:
            self.forkserver.lose()


class ForkServer:
    """The driver's side. `limits`: variables for the processes, next to the driver's own."""

    def __init__(self, spec: TrialSpec, limits: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "evotrainer.executors.forkserver", str(os.getpid()), spec.trainer]
        self.process = subprocess.Popen(
            [*command, json.dumps(spec.environment)],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **limits},
            start_new_session=True,
        )
        theirs.close()
        self.control = ours
        self.trials: list[Forked] = []
        """Asked for, in order; those without a pid are still to be forked."""
        self.close = weakref.finalize(self, _end, self.process, ours)

    @property
    def alive(self) -> bool:
        return self.close.alive and self.process.poll() is None

    def fork(self, folder: Path, log: IO[bytes], key: bytes = b"") -> Forked:
        """A process that runs the trial of a folder, is handed a key, and writes what it prints to `log`."""
        forked = Forked(self)
        self.trials.append(forked)
        try:
            socket.send_fds(self.control, [len(key).to_bytes(1) + key + str(folder).encode()], [log.fileno()])
        except OSError:
            self.lose()
        return forked

    def listen(self, timeout: float | None) -> None:
        """Read what the fork server reports of its trials; wait up to `timeout` seconds for it (None: any time)."""
        try:
            while select.select([self.control], [], [], timeout)[0]:
                if not (message := self.control.recv(MESSAGE)):
                    self.lose()
                    return
                self._take(*json.loads(message))
                timeout = 0.0
        except OSError:
            self.lose()

    def _take(self, pid: int, code: int | None) -> None:
        if code is None:
            next(t for t in self.trials if not t.pid).pid = pid
            return
        ended = next(t for t in self.trials if t.pid == pid)
        ended.returncode = code
        self.trials.remove(ended)

    def lose(self) -> None:
        """End it, if it has not; the kernel kills its trials with it."""
        for t in self.trials:
            t.returncode = LOST
        self.trials.clear()
        self.close()


def _end(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    process.kill()
    process.wait()


# -- the fork server's own side ----------------------------------------------------------------------------------------


def prepare(trainer: str, environment: Mapping[str, Any]) -> None:
    """Import and make what trials have in common. What cannot be had is left to each trial, which says why."""
    with contextlib.suppress(Exception):
        from evotrainer.envs.registry import make_ahead
        from evotrainer.executors import health, worker  # noqa: F401
        from evotrainer.harness.columns import batch, source  # noqa: F401
        from evotrainer.records import canaries, store  # noqa: F401
        from evotrainer.records.sealed import Key
        from evotrainer.trainers import get_trainer

        Key(bytes(32)).cipher  # noqa: B018  # loads the library that trials encrypt with
        get_trainer(trainer)
        make_ahead(environment)


def serve(control: socket.socket) -> None:
    """Fork whenever asked, tell how it ended, until the driver is gone."""
    poller = select.poll()
    poller.register(control, select.POLLIN)
    trials: dict[int, int] = {}
    while True:
        for fd, _ in poller.poll():
            if fd != control.fileno():
                poller.unregister(fd)
                os.close(fd)
                pid = trials.pop(fd)
                _, status = os.waitpid(pid, 0)
                control.send(json.dumps([pid, os.waitstatus_to_exitcode(status)]).encode())
                continue
            asked, fds, _, _ = socket.recv_fds(control, MESSAGE, 1)
            if not asked:
                return
            key, folder = asked[1 : 1 + asked[0]], asked[1 + asked[0] :]
            if (pid := os.fork()) == 0:
                for other in trials:
                    os.close(other)
                control.close()
                become_trial(os.fsdecode(folder), fds[0], key)
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)  # by both sides: whoever is told of the process can kill its group
            os.close(fds[0])
            watched = os.pidfd_open(pid)
            trials[watched] = pid
            poller.register(watched, select.POLLIN)
            control.send(json.dumps([pid, None]).encode())


def become_trial(folder: str, log: int, key: bytes = b"") -> NoReturn:
    """Run the trial of a folder in this process, a fresh fork, and end it."""
    from evotrainer.executors import worker

    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    for fd in (1, 2):
        os.dup2(log, fd)
    os.close(log)
    random.seed()  # of what need not be the same: trials with one state would look at their sandboxes in step
    try:
        code = worker.main([folder, str(os.getppid())], key)
    except BaseException:
        traceback.print_exc()
        code = 1
    leave(code)


def main(argv: list[str]) -> None:
    """`python -m evotrainer.executors.forkserver DRIVER TRAINER ENVIRONMENT`; standard input is the control socket."""
    die_with_parent(int(argv[0]))
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    prepare(argv[1], json.loads(argv[2]))
    # the collector leaves frozen objects alone: it would write to their pages, which trials share with us
    gc.collect()
    gc.freeze()
    serve(control)


if __name__ == "__main__":
    main(sys.argv[1:])

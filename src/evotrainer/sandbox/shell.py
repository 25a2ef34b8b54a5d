"""Episode shells: one confined machine per episode, in which commands run on files that last as long as the episode.

See docs/sandbox.md. A command's processes end with it; files stay until `reset` or `close`. The parent never opens a
path of the episode: files go in and out as bytes, read and written by process 1 inside.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from evotrainer.errors import SandboxError
from evotrainer.sandbox.model import Tier
from evotrainer.sandbox.shell_data import Entry, Ran, ShellFileError, Template, as_bytes, sealed
from evotrainer.sandbox.shell_launch import ShellLimits, Started, start

__all__ = ["ENVIRONMENT", "Entry", "EpisodeShell", "Ran", "ShellFileError", "ShellLimits", "Template"]

ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/w/home",
    "TMPDIR": "/w/tmp",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "USER": "agent",
    "PAGER": "cat",
    "TERM": "dumb",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""Of every command. `/w` is the one writable folder inside; commands start in `/w/repo`."""
_MAX_ARGUMENTS = 100_000
_MAX_PACKET = 180_000
"""A packet has to fit a socket buffer."""
_LOOK_S = 0.1
"""Seconds of silence until a command's CPU time is looked at."""
_PATIENCE_S = 60.0
"""Seconds after a command's last deadline until process 1 counts as lost."""
_HEAD = struct.Struct("<I")


class EpisodeShell:
    """One episode's machine; make it with `EpisodeShell.open`. Not for several threads at once.

    SandboxError from any method means that the machine itself broke: it is closed then, and nothing may be concluded.
    """

    def __init__(self, limits: ShellLimits, started: Started, binds: Sequence[tuple[str, str]] = ()) -> None:
        self.limits = limits
        self._binds = tuple(binds)
        self._started: Started | None = started
        self.python = started.python
        """Path of the Python interpreter inside."""

    @classmethod
    def open(
        cls,
        files: Mapping[str, str | bytes | Entry] | Template | None = None,
        limits: ShellLimits | None = None,
        binds: Sequence[tuple[str, str]] = (),
    ) -> EpisodeShell:
        """A fresh machine with `files` (paths below `/w`, usually `repo/...`); SandboxError where it cannot be had.

        It ends with the thread that opens it: the kernel's parent-death signal goes by threads.
        """
        limits = limits or ShellLimits()
        shell = cls(limits, start(limits, binds), binds)
        try:
            if files:
                shell.write(files)
        except BaseException:
            shell.close()
            raise
        return shell

    @property
    def tier(self) -> Tier:
        """A: memory of all processes together is limited; B: there is no control group to do that."""
        return "A" if self._started is None or self._started.group else "B"

    @property
    def uid(self) -> int:
        """User that its commands run as."""
        return self._started.uid if self._started else -1

    @property
    def pid(self) -> int:
        """Process 1 of the shell, as this machine numbers it."""
        return self._started.pid if self._started else -1

    @property
    def closed(self) -> bool:
        return self._started is None

    def run(
        self,
        argv: Sequence[str],
        stdin: str | bytes = b"",
        cpu_s: float = 10.0,
        wall_s: float | None = None,
        *,
        cwd: str = "repo",
        env: Mapping[str, str] | None = None,
        merge: bool = False,
        also: Sequence[int] = (),
    ) -> Ran:
        """Run one command to its end; everything it started ends with it.

        CPU time of all its processes decides a timeout; `wall_s` is a backstop (None: ten times `cpu_s`, and a minute).
        `env` is added to ENVIRONMENT; `merge`: standard error goes where standard output goes. `also`: at most one
        further descriptor, which the command has as 3; it is closed here.
        """
        if not argv or any("\0" in word for word in argv) or len(json.dumps(list(argv))) > _MAX_ARGUMENTS:
            return Ran(126, b"", b"argument list empty, too long or with a zero byte\n", False, 0.0, False)
        deadline = 10 * cpu_s + 60 if wall_s is None else wall_s
        message = {
            "op": "run",
            "argv": list(argv),
            "cwd": cwd,
            "env": {**ENVIRONMENT, **(env or {})},
            "cpu_s": cpu_s,
            "wall_s": deadline,
            "idle_s": self.limits.idle_s,
        }
        given = sealed([as_bytes(stdin)])
        os.lseek(given, 0, os.SEEK_SET)
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        try:
            try:
                self._send(message, [given, out_w, out_w if merge else err_w, *also])
            finally:
                for fd in (given, out_w, err_w, *also):
                    os.close(fd)
            before = self._counted()
            texts, dropped, answer = self._collect((out_r, err_r), deadline + _PATIENCE_S, cpu_s)
            counted = self._counted() - before
        finally:
            os.close(out_r)
            os.close(err_r)
        if "error" in answer:
            raise self._broken(f"a command could not be started: {answer['error']}")
        done = answer["ok"]
        used = max(done["cpu_s"], counted)
        why = "cpu" if used >= cpu_s and done["why"] in ("", "killed") else done["why"]
        return Ran(done["exit"], texts[0], texts[1], dropped, used, bool(why), why)

    def kill(self) -> None:
        """End the command that another thread waits for in `run`; nothing happens where none runs."""
        with contextlib.suppress(OSError):
            self._control().send(b"k")

    def _counted(self) -> float:
        """CPU-seconds that the control group counted so far; 0 where there is none."""
        return (self._started.cpu_s() if self._started else None) or 0.0

    def _collect(
        self, pipes: tuple[int, int], patience: float, cpu_s: float
    ) -> tuple[tuple[bytes, bytes], bool, dict[str, Any]]:
        """Read both pipes to their ends (what is over the limit is dropped) and the answer.

        Process 1 sees the CPU time of living processes, the control group that of all:
        over `cpu_s` the command is killed.
        """
        control = self._control()
        enough, killed = self._counted() + cpu_s, False
        limit, kept, dropped = self.limits.output_kb << 10, {fd: bytearray() for fd in pipes}, False
        open_fds: set[int] = {*pipes, control.fileno()}
        answer: dict[str, Any] | None = None
        poller = select.poll()
        for fd in open_fds:
            poller.register(fd, select.POLLIN)
        deadline, look = time.monotonic() + patience, 0.0
        while open_fds:
            now = time.monotonic()
            wait = 0.0 if answer is not None else max(0.0, min(deadline - now, _LOOK_S))
            ready = poller.poll(wait * 1000)
            if answer is not None and not ready:
                break  # its processes are gone: what still holds a pipe open writes nothing
            if not ready and now >= deadline:
                raise self._broken("the episode shell does not answer")
            if now >= look and not killed and answer is None:
                look = now + _LOOK_S
                if self._counted() >= enough:
                    killed = True
                    control.send(b"k")
            for fd, _ in ready:
                if fd == control.fileno():
                    answer = self._receive()
                    poller.unregister(fd)
                    open_fds.discard(fd)
                    continue
                piece = os.read(fd, 1 << 16)
                room = limit - len(kept[fd])
                dropped |= len(piece) > room
                kept[fd] += piece[:room]
                if not piece:
                    poller.unregister(fd)
                    open_fds.discard(fd)
        assert answer is not None
        return (bytes(kept[pipes[0]]), bytes(kept[pipes[1]])), dropped, answer

    def write(self, files: Mapping[str, str | bytes | Entry] | Template) -> None:
        """Make or replace files below `/w`; what stands there and is no regular file is replaced, never followed.

        ShellFileError for a path that leads out of `/w` or that is a folder, and when the disk is full.
        """
        template = files if isinstance(files, Template) else Template(files)
        try:
            self._ask(*template.message())
        finally:
            if template is not files:
                template.close()

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files and links; a path that is not there is no error."""
        fd = sealed([])
        try:
            self._ask({"op": "write", "entries": [[p, "-", 0, 0] for p in paths]}, [fd])
        finally:
            os.close(fd)

    def read(self, path: str, limit: int = 1 << 20) -> bytes:
        """Contents of a regular file below `/w`, at most `limit` bytes; links are followed inside only.
        ShellFileError."""
        with _scratch() as fd:
            self._ask({"op": "read", "path": path, "limit": limit}, [fd])
            return _contents(fd)

    def tree(
        self,
        path: str = "repo",
        skip: Sequence[str] = (".git",),
        *,
        contents: bool = True,
        limit: int | None = None,
        most: int = 50_000,
    ) -> list[Entry]:
        """Everything below `path` without `skip`, links not followed.

        ShellFileError over `limit` bytes (None: the size of the disk; files with holes may seem larger), `most` files.
        """
        limit = self.limits.disk_mb << 20 if limit is None else min(limit, self.limits.disk_mb << 20)
        message = {"op": "tree", "path": path, "skip": list(skip), "contents": contents, "limit": limit, "most": most}
        with _scratch() as fd:
            self._ask(message, [fd])
            packed = _contents(fd)
        (size,) = _HEAD.unpack_from(packed)
        entries, at = [], _HEAD.size + size
        for name, kind, mode, extra in json.loads(packed[_HEAD.size : at]):
            data = os.fsencode(extra) if kind == "l" else b""
            if kind == "f" and contents:
                data, at = packed[at : at + extra], at + extra
            entries.append(Entry(name, kind, mode, data))
        return entries

    def reset(self, files: Mapping[str, str | bytes | Entry] | Template | None = None) -> None:
        """A fresh episode: all files of the last one are gone, and its processes were before.

        Connections leave traces in their network namespace: a shell with `loopback` is started anew.
        """
        if self.limits.loopback:
            self._control()
            self.close()
            self._started = start(self.limits, self._binds)
        else:
            self._ask({"op": "reset"}, [])
        if files:
            self.write(files)

    def close(self) -> None:
        """End the machine and everything in it."""
        if self._started:
            self._started.stop()
            self._started = None

    def _control(self) -> socket.socket:
        if self._started is None:
            raise SandboxError("the episode shell is closed; open a new one")
        return self._started.control

    def _broken(self, what: str) -> SandboxError:
        reason = self._started.last_words() if self._started else ""
        self.close()
        return SandboxError(f"{what} ({reason}); the episode is lost, run it again")

    def _send(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        control = self._control()
        packet = json.dumps(message).encode()
        if len(packet) > _MAX_PACKET:
            raise ShellFileError("a path or an argument is too long")
        try:
            socket.send_fds(control, [packet], list(fds))
        except OSError as error:
            raise self._broken(f"the episode shell is gone: {error}") from error

    def _receive(self) -> dict[str, Any]:
        try:
            answer = self._control().recv(1 << 16)
        except OSError as error:
            raise self._broken(f"the episode shell does not answer: {error}") from error
        if not answer:
            if self._started and self._started.out_of_memory():
                self.close()
                raise ShellFileError("the episode's files take more memory than it may use; its shell is gone")
            raise self._broken("the episode shell ended")
        result: dict[str, Any] = json.loads(answer)
        return result

    def _ask(self, message: dict[str, Any], fds: Sequence[int]) -> Any:
        self._send(message, fds)
        answer = self._receive()
        if "error" in answer:
            raise ShellFileError(f"{answer['error']}")
        return answer["ok"]

    def __enter__(self) -> EpisodeShell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextlib.contextmanager
def _scratch() -> Iterator[int]:
    fd = os.memfd_create("out", os.MFD_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _contents(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    parts, at = [], 0
    while at < size:
        part = os.pread(fd, size - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)

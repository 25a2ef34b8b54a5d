"""Episode shells: one confined machine per episode, in which commands run on files that last as long as the episode.

See docs/sandbox.md. A command's processes end with it; files stay until `reset` or `close`. The parent never opens a
path of the episode: files go in and out as bytes, read and written by process 1 inside.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence

from evotrainer.records.closing import Closing
from evotrainer.sandbox.model import Tier
from evotrainer.sandbox.shell_channel import ShellChannel
from evotrainer.sandbox.shell_data import CommandResult, Entry, Template, as_bytes, memory_file
from evotrainer.sandbox.shell_launch import ShellLimits, StartedShell, start

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
_PATIENCE_S = 60.0
"""Seconds after a command's last deadline until process 1 counts as lost."""
_HEAD = struct.Struct("<I")


class EpisodeShell(Closing):
    """One episode's machine; make it with `EpisodeShell.open`. Not for several threads at once.

    SandboxError from any method means that the machine itself broke: it is closed then, and nothing may be concluded.
    """

    def __init__(self, limits: ShellLimits, started: StartedShell, binds: Sequence[tuple[str, str]] = ()) -> None:
        self.limits = limits
        self._binds = tuple(binds)
        self._channel = ShellChannel(started, limits.output_kb)
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
        return "A" if self._channel.started is None or self._channel.started.group else "B"

    @property
    def uid(self) -> int:
        """User that its commands run as."""
        return self._channel.started.uid if self._channel.started else -1

    @property
    def pid(self) -> int:
        """Process 1 of the shell, as this machine numbers it."""
        return self._channel.started.pid if self._channel.started else -1

    @property
    def closed(self) -> bool:
        return self._channel.started is None

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
    ) -> CommandResult:
        """Run one command to its end; everything it started ends with it.

        CPU time of all its processes decides a timeout; `wall_s` is a backstop (None: ten times `cpu_s`, and a minute).
        `env` is added to ENVIRONMENT; `merge`: standard error goes where standard output goes. `also`: at most one
        further descriptor, which the command has as 3; it is closed here.
        """
        if not argv or any("\0" in word for word in argv) or len(json.dumps(list(argv))) > _MAX_ARGUMENTS:
            return CommandResult(126, b"", b"argument list empty, too long or with a zero byte\n", False, 0.0, False)
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
        # a memory file as standard input: no pipe that a command could leave half read and block us
        given = memory_file([as_bytes(stdin)])
        os.lseek(given, 0, os.SEEK_SET)
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        try:
            try:
                self._channel.send(message, [given, out_w, out_w if merge else err_w, *also])
            finally:
                for fd in (given, out_w, err_w, *also):
                    os.close(fd)
            before = self._channel.cpu_s()
            texts, dropped, answer = self._channel.collect((out_r, err_r), deadline + _PATIENCE_S, cpu_s)
            counted = self._channel.cpu_s() - before
        finally:
            os.close(out_r)
            os.close(err_r)
        if "error" in answer:
            raise self._channel.broken(f"a command could not be started: {answer['error']}")
        done = answer["ok"]
        # process 1 does not see children that nobody waited for, the control group does
        used = max(done["cpu_s"], counted)
        why = "cpu" if used >= cpu_s and done["why"] in ("", "killed") else done["why"]
        return CommandResult(done["exit"], texts[0], texts[1], dropped, used, bool(why), why)

    def kill(self) -> None:
        """End the command that another thread waits for in `run`; nothing happens where none runs."""
        with contextlib.suppress(OSError):
            self._channel.control.send(b"k")

    def write(self, files: Mapping[str, str | bytes | Entry] | Template) -> None:
        """Make or replace files below `/w`; what stands there and is no regular file is replaced, never followed.

        ShellFileError for a path that leads out of `/w` or that is a folder, and when the disk is full.
        """
        template = files if isinstance(files, Template) else Template(files)
        try:
            self._channel.ask(*template.message())
        finally:
            if template is not files:
                template.close()

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files and links; a path that is not there is no error."""
        fd = memory_file([])
        try:
            self._channel.ask({"op": "write", "entries": [[p, "-", 0, 0] for p in paths]}, [fd])
        finally:
            os.close(fd)

    def read(self, path: str, limit: int = 1 << 20) -> bytes:
        """Contents of a regular file below `/w`, at most `limit` bytes; links are followed inside only.
        ShellFileError."""
        with _scratch() as fd:
            self._channel.ask({"op": "read", "path": path, "limit": limit}, [fd])
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
            self._channel.ask(message, [fd])
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
            _ = self._channel.control  # a closed shell is not opened again
            self.close()
            self._channel = ShellChannel(start(self.limits, self._binds), self.limits.output_kb)
        else:
            self._channel.ask({"op": "reset"}, [])
        if files:
            self.write(files)

    def close(self) -> None:
        """End the machine and everything in it."""
        self._channel.close()


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

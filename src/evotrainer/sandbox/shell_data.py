"""Inputs and results of an episode shell."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evotrainer.errors import EvoTrainerError
from evotrainer.records.closing import Closing

_MAX_MESSAGE = 100_000
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK


class ShellFileError(EvoTrainerError):
    """A file of the episode cannot be read or written as asked (it is a folder, a link out, too large);
    its own doing."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. `exit`: its code, 128 + n for signal n, 127 when there is no such command."""

    exit: int
    stdout: bytes
    stderr: bytes
    truncated: bool
    """Output over the limit was dropped."""
    cpu_s: float
    """CPU-seconds of all its processes, as the kernel measured them."""
    timed_out: bool
    why: str = ""
    """What ended it: cpu, idle (asleep), wall; empty when it ended by itself."""

    @property
    def text(self) -> str:
        """Standard output as text; what is not UTF-8 is replaced."""
        return self.stdout.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in the tree. `kind`: f (regular file), l (symbolic link), d (empty folder), ?
    (pipe, socket, device)."""

    path: str
    kind: Literal["f", "l", "d", "?"]
    mode: int
    data: bytes
    """Contents of a file, if they were asked for; target of a link."""


class Template(Closing):
    """Files packed once and written into many shells: a memory file that nobody changes. Close it after use.

    Values: text or bytes (a file), or an `Entry` (file with its mode, link, empty folder). Paths are below `/w`.
    """

    def __init__(self, files: Mapping[str, str | bytes | Entry]) -> None:
        self._entries: list[list[Any]] = []
        chunks: list[bytes] = []
        for path, value in files.items():
            entry = value if isinstance(value, Entry) else Entry(path, "f", 0o644, as_bytes(value))
            if entry.kind == "f":
                chunks.append(entry.data)
                self._entries.append([path, "f", entry.mode, len(entry.data)])
            elif entry.kind == "l":
                self._entries.append([path, "l", entry.mode, os.fsdecode(entry.data)])
            elif entry.kind == "d":
                self._entries.append([path, "d", entry.mode, 0])
        self.size = sum(map(len, chunks))
        self._data = memory_file(chunks)
        head = json.dumps(self._entries).encode()
        # a long list of files does not fit a packet of the control socket: it goes as a memory file, too
        self._head, self._head_size = (memory_file([head]), len(head)) if len(head) > _MAX_MESSAGE else (-1, 0)

    def message(self) -> tuple[dict[str, Any], list[int]]:
        """What process 1 is told, and the descriptors that go with it."""
        if self._head >= 0:
            return {"op": "write", "entries": [], "head": self._head_size}, [self._data, self._head]
        return {"op": "write", "entries": self._entries}, [self._data]

    def close(self) -> None:
        """Free the memory; shells that were written to keep their files."""
        for fd in (self._data, self._head):
            if fd >= 0:
                os.close(fd)
        self._data = self._head = -1


def as_bytes(value: str | bytes) -> bytes:
    """Text as UTF-8."""
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")


def memory_file(chunks: Sequence[bytes]) -> int:
    """A memory file with these contents that nobody can change any more; the caller closes it."""
    fd = os.memfd_create("files", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    for chunk in chunks:
        view = memoryview(chunk)
        while view:
            view = view[os.write(fd, view) :]
    # closed to changes, as process 1 of several machines may read it at once: none can change what the others see
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd

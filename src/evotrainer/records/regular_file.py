"""Files in folders that others write as well: a cache, a library, a run, an import.

What lies in the place of a file may be a named pipe or a device, on which reading waits for ever, or a file without an
end. Every such place is opened here: a regular file, of a size that its reader can hold, or an error within the moment.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from evotrainer.errors import StoreError

MOST = 256 << 20
"""Bytes that are read into memory at once, where a reader does not say: ledgers' notes, results, settings, sources."""
KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class UnreadableError(StoreError, OSError):
    """No regular file, or one that is too large. An OSError as well: who looks what is there finds it unreadable."""

    def __init__(self, number: int, why: str, path: str) -> None:
        super().__init__(number, why, path)

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}; put the file that belongs there in its place"


def regular_fd(path: Path | str, flags: int = 0) -> int:
    """A descriptor of a regular file, for reading unless `flags` say more; nothing is waited for, links are followed
    unless `flags` have O_NOFOLLOW. OSError for anything else: UnreadableError where the kind of file is the cause."""
    check_regular(path)  # before it is opened: opening a device may do something
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, 0o644)
    try:
        _check(os.fstat(fd).st_mode, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_regular(path: Path | str) -> None:
    """UnreadableError where there is something else than a regular file."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    _check(mode, path)


def _check(mode: int, path: Path | str) -> None:
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "of another kind")
        raise UnreadableError(errno.EINVAL, f"is {kind}, no regular file", str(path))


def absent(path: Path, what: str = "file") -> str:
    """`no file PATH`, or what is in its place: for the message of who looked for `what` there."""
    kind = KINDS.get(stat.S_IFMT(path.stat().st_mode)) if path.exists() else None
    return f"{path} is {kind}, no {what}" if kind else f"no {what} {path}"


def open_regular(path: Path | str, flags: int = 0) -> BufferedReader:
    """The same as a file for reading."""
    return os.fdopen(regular_fd(path, flags), "rb")


def read_bytes(path: Path | str, most: int = MOST, flags: int = 0) -> bytes:
    """All of a regular file; UnreadableError where it has more than `most` bytes, also where it grows meanwhile."""
    with open_regular(path, flags) as f:
        size = os.fstat(f.fileno()).st_size
        data = f.read(most + 1) if size <= most else b""
    if max(size, len(data)) > most:
        raise UnreadableError(errno.EFBIG, f"has more than {most:,} bytes", str(path))
    return data


def read_object(path: Path | str) -> dict[str, Any]:
    """A JSON object; empty where there is none that can be read."""
    try:
        found = json.loads(read_text(path))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_text(path: Path | str, most: int = MOST, errors: str = "strict") -> str:
    """The same as UTF-8 text, its line ends as newlines; UnicodeDecodeError, a ValueError, where it is none."""
    text = read_bytes(path, most).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text

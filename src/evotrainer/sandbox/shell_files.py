"""The files of an episode shell, touched by its process 1 only, and only while no command runs: nobody can swap a path
between a check and its use. Runs inside bubblewrap, loaded from text.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import struct
from typing import Any

ROOT = "/w"
_HEAD = struct.Struct("<I")
_MAX_DEPTH = 64
_MAX_NAMES = 8 << 20
"""Bytes of paths in one tree."""


class FileError(Exception):
    """A path that cannot be read or written as asked: the policy's doing, not a fault."""


def _inside(path: str) -> str:
    """The real place of `path` below ROOT; FileError when it leads out of it."""
    # resolved and then compared: links inside may point anywhere below ROOT, and nowhere else
    real = os.path.realpath(os.path.join(ROOT, path))
    if not real.startswith(ROOT + "/"):
        raise FileError(f"{path}: leads out of the working folder")
    return real


def _write_one(path: str, mode: int, data: memoryview | bytes) -> None:
    """Make or replace a regular file; anything else that stands there is removed first, never followed."""
    folder, name = os.path.split(os.path.normpath(os.path.join(ROOT, path)))
    if not name or name in (".", ".."):
        raise FileError(f"{path}: no file name")
    real = _inside(folder) if folder != ROOT else ROOT
    os.makedirs(real, exist_ok=True)
    place = f"{real}/{name}"
    try:
        found = os.lstat(place).st_mode
        if stat.S_ISDIR(found):
            raise FileError(f"{path}: is a folder")
        os.unlink(place)  # also a file: another name of it would be written too
    except FileNotFoundError:
        pass
    # O_EXCL and O_NOFOLLOW: whatever stood here is gone, and nothing that appears since is written through
    fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        view = memoryview(data)
        while view:
            # os.write may take less than it is given
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


def write(entries: list[list[Any]], fd: int) -> int:
    """Entries [path, kind, mode, size or target] whose contents lie one after another in `fd`; returns their number."""
    at = 0
    for path, kind, mode, size in entries:
        if kind == "f":
            _write_one(path, mode, pread(fd, size, at))
            at += size
        elif kind == "d":
            os.makedirs(_inside(path), exist_ok=True)
        elif kind == "l":
            folder, name = os.path.split(path)
            real = _inside(folder or ".")
            os.makedirs(real, exist_ok=True)
            os.symlink(size, f"{real}/{name}")
        elif kind == "-":
            _remove(path)
        else:
            raise FileError(f"{path}: unknown kind {kind!r}")
    return len(entries)


def _remove(path: str) -> None:
    folder, name = os.path.split(os.path.normpath(os.path.join(ROOT, path)))
    real = _inside(folder) if folder != ROOT else ROOT
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{real}/{name}")


def pread(fd: int, size: int, at: int) -> bytes:
    parts = []
    while size:
        part = os.pread(fd, size, at)
        if not part:
            raise FileError("contents are shorter than announced")
        parts.append(part)
        size, at = size - len(part), at + len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _open_regular(place: str, shown: str) -> tuple[int, os.stat_result]:
    # O_NONBLOCK: opening a pipe without a writer would wait for ever; the type is checked on the descriptor
    fd = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise FileError(f"{shown}: not a regular file")
    return fd, info


def _send_all(fd: int, out: int, limit: int) -> int:
    done = 0
    while done < limit:
        # in the kernel: contents never become Python objects in process 1, whose memory is the episode's
        sent = os.sendfile(out, fd, done, limit - done)
        if not sent:
            break
        done += sent
    return done


def read(path: str, limit: int, out: int) -> dict[str, Any]:
    """Up to `limit` bytes of a regular file below ROOT into `out`."""
    fd, info = _open_regular(_inside(path), path)
    try:
        done = _send_all(fd, out, min(limit, info.st_size))
    finally:
        os.close(fd)
    return {"size": info.st_size, "read": done}


class NameBudget:
    """How many bytes of names may still be told: each costs us several times its length."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, path: str) -> None:
        self.left -= len(os.fsencode(path)) + 16
        if self.left < 0:
            raise FileError(f"names of more than {_MAX_NAMES >> 20} MB")


def _walk(
    folder: str, below: str, skip: set[str], depth: int, found: list[list[Any]], most: int, names: NameBudget
) -> None:
    if depth > _MAX_DEPTH:
        raise FileError(f"{below}: more than {_MAX_DEPTH} folders deep")
    for name in sorted(os.listdir(folder)):  # names only: entries would hold the whole path, each
        path = f"{below}{name}"
        if path in skip:
            continue
        if len(found) >= most:
            raise FileError(f"more than {most} files")
        names.take(path)
        info = os.lstat(f"{folder}/{name}")
        if stat.S_ISDIR(info.st_mode):
            before = len(found)
            _walk(f"{folder}/{name}", path + "/", skip, depth + 1, found, most, names)
            if len(found) == before:
                # only empty folders are entries: others follow from their files
                found.append([path, "d", info.st_mode & 0o777, 0])
        elif stat.S_ISLNK(info.st_mode):
            found.append([path, "l", 0o777, os.readlink(f"{folder}/{name}")])
        elif stat.S_ISREG(info.st_mode):
            found.append([path, "f", info.st_mode & 0o777, info.st_size])
        else:
            found.append([path, "?", info.st_mode & 0o777, 0])


def tree(path: str, skip: list[str], limit: int, most: int, contents: bool, out: int) -> int:
    """Entries below `path` (links are not followed) as a counted JSON head and, if asked, the files' contents."""
    top = _inside(path)
    found: list[list[Any]] = []
    _walk(top, "", set(skip), 0, found, most, NameBudget(_MAX_NAMES))
    total = sum(size for _, kind, _, size in found if kind == "f")
    if contents and total > limit:
        raise FileError(f"{total} bytes in files, at most {limit} allowed")
    head = json.dumps(found).encode()
    view = memoryview(_HEAD.pack(len(head)) + head)
    while view:
        view = view[os.write(out, view) :]
    if contents:
        for name, kind, _, size in found:
            if kind == "f":
                fd, _ = _open_regular(f"{top}/{name}", name)
                try:
                    if _send_all(fd, out, size) != size:
                        raise FileError(f"{name}: shorter than announced")
                finally:
                    os.close(fd)
    return len(found)

"""Files that survive a crash: a writer's lock, atomic replacement, folder fsync, checksums, plain errors."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from evotrainer.errors import StoreError
from evotrainer.records.regular_file import open_regular, regular_fd

_REMEDY = {
    errno.ENOSPC: (
        "the disk is full",
        "free some space and run again; everything acknowledged before is kept",
    ),
    errno.EDQUOT: (
        "the disk quota is used up",
        "free some space and run again; everything acknowledged is kept",
    ),
    errno.EFBIG: (
        "the file-size limit is reached",
        "raise it (ulimit -f) and run again; nothing written is lost",
    ),
    errno.EROFS: ("the file system is read-only", "choose another folder or remount it"),
    errno.EACCES: ("permission denied", "give yourself write permission or choose another folder"),
    errno.EPERM: ("operation not permitted", "give yourself write permission or choose another folder"),
    errno.ENOENT: ("no such file or folder", "check the path"),
    errno.EIO: (
        "the disk reports an input/output error",
        "check the disk; copy the run folder to a good one",
    ),
    errno.EMFILE: ("too many open files", "raise the limit (ulimit -n)"),
}


def os_trouble(what: str, e: OSError) -> StoreError:
    """An OSError as `what: cause; remedy`."""
    cause, remedy = _REMEDY.get(e.errno or 0, (e.strerror or str(e), "check the path and the disk"))
    return StoreError(f"{what}: {cause}; {remedy}")


def write_trouble(what: str, e: Exception, folder: Path) -> StoreError:
    """Why a library could not write `what`, also one that wraps the system's error in a text of its own.

    A file system without a free block in `folder` is a full disk whatever the library calls it.
    """
    if isinstance(e, OSError) and e.errno in _REMEDY:
        return os_trouble(what, e)
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        free = None
    if f"os error {errno.ENOSPC}" in str(e) or os.strerror(errno.ENOSPC) in str(e) or free == 0:
        return os_trouble(what, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    return StoreError(f"{what}: cannot be written ({e}); free space or choose another place")


DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""Errors of a full disk or quota, which are no fault of the program that wrote."""


def disk_trouble(e: BaseException | None) -> OSError | None:
    """The error of the disk that `e` is, or came from; None where the disk had no part in it."""
    seen: set[int] = set()
    while e is not None and id(e) not in seen:
        if isinstance(e, OSError) and e.errno in DISK:
            return e
        seen.add(id(e))
        e = e.__cause__ or e.__context__
    return None


@contextmanager
def os_errors(what: str) -> Iterator[None]:
    """Turn an OSError of the block into a StoreError."""
    try:
        yield
    except OSError as e:
        raise os_trouble(what, e) from e


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


class WriterLock:
    """Exclusive lock of one writer, `flock` on `path`, the holder's pid inside. It dies with its process.

    Raises StoreError naming the holder's pid where another writer has it; `wait`: waits until it is done, without end.
    The file stays behind, unlocked.
    """

    def __init__(self, path: Path, what: str, wait: bool = False) -> None:
        with os_errors(f"cannot lock {what}"):
            self._fd = regular_fd(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as e:
            pid = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            self._fd = -1
            if e.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise os_trouble(f"cannot lock {what}", e) from e
            raise lock_error(what, pid) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        _held.add(self)

    @property
    def held(self) -> bool:
        """False after `release`, and in a forked child."""
        return self._fd >= 0

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self.forget()

    def forget(self) -> None:
        """Close the file only: what a forked child does with its parent's lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def lock_error(what: str, pid: int | str) -> StoreError:
    """The error for what another writer holds."""
    pid = pid or "unknown"
    return StoreError(f"{what} is being written by process {pid}; wait for it or stop it (kill {pid}), then run again")


def writer_of(path: Path) -> int | None:
    """Process id of whoever holds the `WriterLock` at `path` now; None where nobody does, 0 where it does not say."""
    try:
        fd = regular_fd(path)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, and let go at once: it keeps no writer out for long
    except OSError as e:
        if e.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(fd)
    return None


def _forget_in_child() -> None:
    # A forked child shares the lock's file description and would keep it locked after its parent died.
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_in_child)


def fsync(path: Path) -> None:
    """Flush a file to the disk, or the names in a folder: renames and new files."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | bytearray) -> None:
    """Write all of `data`; a short write is continued."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_synced(path: Path, data: bytes) -> None:
    """Write `path` and fsync it; its name is durable only after `fsync`."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_synced(path: Path, data: bytes) -> None:
    """Replace `path` by `data` atomically and durably: temporary, fsync, rename, fsync of the folder."""
    temporary = path.with_name(path.name + ".tmp")
    write_synced(temporary, data)
    os.replace(temporary, path)
    fsync(path.parent)


T = TypeVar("T")
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES)


def put_first(path: Path, data: bytes, read: Callable[[], T | None]) -> T | None:
    """Write `path`, whole, where it is not there yet, and return None; else what `read` says of the one that is there.
    One that `read` cannot read (None) is replaced. StoreError where it cannot be written."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os_errors(f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_synced(part, data)
        try:
            os.link(part, path)  # whole, and only where nothing is
        except FileExistsError:
            if (first := read()) is not None:
                return first
            os.replace(part, path)
        except OSError as e:
            if e.errno not in _NO_LINKS:
                raise
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                return read()
            with open(fd, "wb", buffering=0) as f:
                write_all(f.fileno(), data)
        finally:
            part.unlink(missing_ok=True)
        fsync(path.parent)
    return None


def sha256_tree(folder: Path, base: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder (or of the file it is), by its path relative to `base`, sorted."""
    files = [folder] if folder.is_file() else [p for p in folder.rglob("*") if p.is_file()]
    return {str(p.relative_to(base)): sha256_file(p) for p in sorted(files)}


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits."""
    with open_regular(path) as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def replace_folder(new: Path, folder: Path) -> None:
    """Put `new` in the place of `folder`: a crash leaves the old one, the new one, or the old one as `.<name>.old`."""
    fsync(new)
    folder.parent.mkdir(parents=True, exist_ok=True)
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    fsync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def whole_folder(folder: Path, what: str, errors: tuple[type[Exception], ...] = (OSError,)) -> Iterator[Path]:
    """A folder to write into, which takes the place of `folder` once all that was written is on disk. StoreError,
    beginning with `what`, where `errors` are raised."""
    new = folder.with_name(f".{folder.name}.writing-{os.getpid()}")
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        yield new
        for file in new.iterdir():
            fsync(file)
        replace_folder(new, folder)
    except errors as e:
        raise write_trouble(what, e, folder.parent) from e
    finally:
        shutil.rmtree(new, ignore_errors=True)


def recover_folder(folder: Path) -> None:
    """Undo a crash in the middle of `replace_folder`."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        old.rename(folder)

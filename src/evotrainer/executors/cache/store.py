"""The cache on disk: one file per known training or evaluation, found by its key, checked when it is used.

    <folder>/<code>/<key>.trial   a zip without compression: manifest.json, its checksum, and the files it names
    <folder>/tmp/                 files being written, each locked by its writer

An entry appears by a rename and goes by one unlink, so that runs side by side and a kill at any moment leave whole
entries only. `code` is of the version that computed it; an entry's modification time is when it was last used.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from evotrainer.errors import IntegrityError
from evotrainer.records.closing import Closing
from evotrainer.records.durable import fsync, os_trouble
from evotrainer.records.events import SplitScore
from evotrainer.records.faults import fault_point
from evotrainer.records.frozen import Frozen
from evotrainer.records.regular_file import open_regular
from evotrainer.records.text import cause

FORMAT = 1
"""Of entries; it is part of every key as well, so that another one is met only where somebody copied files about."""
SUFFIX, TMP, TAG = ".trial", "tmp", "CACHEDIR.TAG"
MANIFEST, SEAL = "manifest.json", "manifest.sha256"
KEPT_SHARE = 0.9
"""Share of the limit that stays when the limit is passed: not every new entry has to evict one."""


class Manifest(Frozen):
    """What an entry holds. `files`: member -> SHA-256; those below `policy/` are a policy, the others rollouts."""

    format: int = FORMAT
    run: str
    branch: str
    """Names in its rollouts: those of the run that computed it."""
    cpu_s: float
    wall_s: float
    """What it cost when it was computed."""
    peak_rss_mb: float = 0.0
    policy_sha256: str = ""
    start_sha256: str = ""
    """See `TrialFinished`."""
    curve: tuple[dict[str, float], ...] = ()
    scores: tuple[SplitScore, ...] = ()
    files: dict[str, str]


class CacheEntry(Closing):
    """An entry that is read: what it gives was compared with its checksums. IntegrityError where it does not match."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bad = False
        """Whether it was found damaged."""
        try:
            self._opened = open_regular(path)
            self.file = zipfile.ZipFile(self._opened)
        except FileNotFoundError:
            raise
        except Exception as e:  # a torn or foreign file meets many kinds of error in zipfile
            raise self.damaged(e) from None
        try:
            self.manifest = self._manifest()
        except BaseException:
            self.close()
            raise

    def _manifest(self) -> Manifest:
        try:
            data = self.file.read(self._member(MANIFEST))
            seal = self.file.read(self._member(SEAL)).decode()
            body = json.loads(data)
            found = body.get("format")
        except Exception as e:
            raise self.damaged(e) from None
        if hashlib.sha256(data).hexdigest() != seal:
            raise self.damaged("its manifest does not match its checksum")
        if found != FORMAT:
            raise IntegrityError(f"cache entry {self.path} was written by another version (format {found})")
        try:
            return Manifest.model_validate(body)
        except ValidationError as e:
            raise self.damaged(e.errors()[0]["msg"]) from None

    def damaged(self, why: object) -> IntegrityError:
        """The error that says so."""
        self.bad = True
        return IntegrityError(f"cache entry {self.path} is damaged ({cause(why)})")

    def _member(self, name: str) -> zipfile.ZipInfo:
        info = self.file.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ValueError(f"{name} is compressed")  # ours are not; a small file must not unpack to a large one
        return info

    def read(self, member: str) -> bytes:
        """A file of it, whole."""
        try:
            data = self.file.read(self._member(member))
        except Exception as e:
            raise self.damaged(e) from None
        if hashlib.sha256(data).hexdigest() != self.manifest.files.get(member):
            raise self.damaged(f"{member} does not match its checksum")
        return data

    def copy(self, below: str, to: Path) -> None:
        """The files whose names begin with `below`, as files of a new folder: a copy, so that what becomes of the
        folder is nothing to the cache."""
        for member, sha in self.manifest.files.items():
            if not member.startswith(below):
                continue
            path = to / member.removeprefix(below)
            if not path.resolve().is_relative_to(to.resolve()):
                raise self.damaged(f"{member} leads out of its folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as out:
                found = hashlib.sha256()
                for chunk in self._chunks(member):
                    found.update(chunk)
                    out.write(chunk)
                out.flush()
                os.fsync(out.fileno())
            if found.hexdigest() != sha:
                raise self.damaged(f"{member} does not match its checksum")

    def _chunks(self, member: str) -> Iterator[bytes]:
        try:
            with self.file.open(self._member(member)) as f:
                while chunk := f.read(1 << 20):
                    yield chunk
        except Exception as e:
            raise self.damaged(e) from None

    def close(self) -> None:
        self.file.close()
        self._opened.close()


@dataclass(frozen=True, slots=True)
class CacheSize:
    """What a cache folder holds. `other`: of it, what other versions of EvoTrainer computed."""

    entries: int
    bytes: int
    other: int
    other_bytes: int


class TrialCache:
    """A cache folder. `code`: of the version that runs; `limit`: bytes that all entries together may take."""

    def __init__(self, folder: Path, code: str, limit: int) -> None:
        self.folder, self.code, self.limit = folder, code, limit

    def open(self) -> None:
        """Make the folder, for its owner alone, and clear away what killed writers left. OSError where it cannot."""
        for f in (self.folder, self.folder / TMP, self.folder / self.code):
            f.mkdir(mode=0o700, parents=True, exist_ok=True)  # gate and cert lie in it, whatever the umask
        tag = self.folder / TAG
        if not tag.exists():
            tag.write_text("Signature: 8a477f597d28d172789f06886806bc55\n# https://bford.info/cachedir/\n")
        for left in (self.folder / TMP).iterdir():
            with contextlib.suppress(OSError), open_regular(left) as writers:
                fcntl.flock(writers, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its writer is gone
                left.unlink()

    def path(self, key: str) -> Path:
        """Where the entry of a key lies, if there is one."""
        return self.folder / self.code / f"{key}{SUFFIX}"

    def find(self, key: str) -> CacheEntry | None:
        """The entry of a key, noted as used; None without one. IntegrityError where it is damaged."""
        path = self.path(key)
        try:
            entry = CacheEntry(path)
        except FileNotFoundError:
            return None
        with contextlib.suppress(OSError):  # a cache that may only be read has no order of use
            os.utime(path)
        return entry

    def put(self, key: str, manifest: Manifest, members: Mapping[str, Path | bytes]) -> None:
        """Store an entry; one that is there already stays. OSError where it cannot be written,
        IntegrityError where a file is not what the manifest says."""
        path = self.path(key)
        if path.exists():
            return
        fd, name = tempfile.mkstemp(dir=self.folder / TMP)  # mode 0600
        try:
            with os.fdopen(fd, "wb") as f:
                fcntl.flock(f, fcntl.LOCK_EX)
                _write(f, manifest, members)
                f.flush()
                os.fsync(f.fileno())
                if f.tell() > self.limit:
                    os.unlink(name)
                    return
                fault_point("cache:written")
                os.replace(name, path)
            fsync(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        self._evict()

    def drop(self, key: str) -> None:
        """Take an entry away: what it says cannot be believed."""
        with contextlib.suppress(OSError):
            self.path(key).unlink(missing_ok=True)

    def _evict(self) -> None:
        """Least recently used entries go, of any version, while all together are over the limit."""
        found = sorted(_entries(self.folder), key=lambda e: e[1].st_mtime)
        total = sum(s.st_size for _, s in found)
        if total <= self.limit:
            return
        for path, stat in found:
            if total <= KEPT_SHARE * self.limit:
                return
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                total -= stat.st_size

    def size(self) -> CacheSize:
        """Number and bytes of its entries."""
        own: list[int] = []
        other: list[int] = []
        for path, stat in _entries(self.folder):
            (own if path.parent.name == self.code else other).append(stat.st_size)
        return CacheSize(len(own) + len(other), sum(own) + sum(other), len(other), sum(other))


def clear(folder: Path) -> None:
    """Delete every entry below a cache folder, and nothing else; StoreError where that is refused."""
    try:
        for path, _ in list(_entries(folder)):
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty
                path.parent.rmdir()
        if (folder / TAG).is_file():
            shutil.rmtree(folder / TMP, ignore_errors=True)
    except OSError as e:
        raise os_trouble(f"cannot empty the cache {folder}", e) from e


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Entries of all versions; one that goes meanwhile is passed over."""
    for path in folder.glob(f"{'[0-9a-f]' * 16}/*{SUFFIX}"):
        with contextlib.suppress(OSError):
            yield path, path.stat()


def _write(f: IO[bytes], manifest: Manifest, members: Mapping[str, Path | bytes]) -> None:
    data = json.dumps(manifest.model_dump(mode="json")).encode()
    with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as out:
        for name, content in ((MANIFEST, data), (SEAL, hashlib.sha256(data).hexdigest().encode())):
            out.writestr(zipfile.ZipInfo(name), content)
        for name, source in members.items():
            fault_point("cache:writing")
            found: Any = hashlib.sha256()
            with out.open(zipfile.ZipInfo(name), "w", force_zip64=True) as to:
                for chunk in _read(source):
                    found.update(chunk)
                    to.write(chunk)
            if found.hexdigest() != manifest.files.get(name):
                raise IntegrityError(f"{source if isinstance(source, Path) else name} changed while it was stored")


def _read(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with open_regular(source) as f:
        while chunk := f.read(1 << 20):
            yield chunk

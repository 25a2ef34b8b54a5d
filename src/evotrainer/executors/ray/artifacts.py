"""Files of trials over any fsspec URL: snapshots of a trial while it runs, what it needs, what it left. No Ray here.

    <url>/<key>/inputs/<sha256>                      base policies, environment files: by content, shared by all trials
    <url>/<key>/trials/<trial>/blobs/<sha256>        a trial's own files
    <url>/<key>/trials/<trial>/a00002-000007.json    snapshot 7 of attempt 2: which file has which content

A snapshot is never overwritten and carries its own checksum:
a torn or half-uploaded one is passed over for the one before.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from evotrainer.errors import ConfigError, IntegrityError, MissingDependencyError, StoreError, install
from evotrainer.executors.inputs import TreeFile
from evotrainer.executors.spec import store_dirs, trial_dir
from evotrainer.records.durable import sha256_file

T = TypeVar("T")
TRIES = 4
"""Tries of one transfer; the waits between them double from half a second."""
KEPT = 2
"""Snapshots of a running attempt that stay; older ones and their blobs go."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A trial's files at one moment; `final`: the trial ended, its result is among them."""

    attempt: int
    number: int
    final: bool
    items: tuple[TreeFile, ...]

    @property
    def name(self) -> str:
        return f"a{self.attempt:05d}-{self.number:06d}.json"

    def text(self) -> str:
        body = {
            "attempt": self.attempt,
            "number": self.number,
            "final": self.final,
            "items": [[i.path, i.sha256, i.size] for i in self.items],
        }
        return json.dumps({**body, "seal": _seal(body)}, indent=0)

    @classmethod
    def parse(cls, text: str) -> Snapshot | None:
        """None where the text is torn or was changed."""
        try:
            body = json.loads(text)
            if body.pop("seal") != _seal(body):
                return None
            return cls(body["attempt"], body["number"], body["final"], tuple(TreeFile(*i) for i in body["items"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def _seal(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_protocol(url: str) -> None:
    """ConfigError where fsspec has no file system for this URL, MissingDependencyError where its library is missing."""
    try:
        from fsspec import get_filesystem_class
        from fsspec.utils import get_protocol
    except ImportError:
        raise MissingDependencyError(
            f"executor.options.artifacts needs fsspec, which is not installed; run: {install('ray')}"
        ) from None
    for part in url.split("::"):
        try:
            get_filesystem_class(get_protocol(part))
        except ValueError as e:
            raise ConfigError(
                f"executor.options.artifacts {url!r}: {e}; give an fsspec URL such as s3://bucket/folder or "
                "file:///shared/folder"
            ) from None
        except ImportError as e:
            raise MissingDependencyError(
                f"executor.options.artifacts {url!r} needs a library that is not installed: {e}"
            ) from None


class Artifacts:
    """One run's place below an fsspec URL. Raises ConfigError for an URL nobody can open,
    StoreError for failed transfers."""

    def __init__(self, url: str, key: str, options: Mapping[str, Any] | None = None) -> None:
        try:
            import fsspec
        except ImportError:
            raise MissingDependencyError(
                f"executor.options.artifacts needs fsspec, which is not installed; run: {install('ray')}"
            ) from None
        try:
            self.fs, root = fsspec.core.url_to_fs(url, **(options or {}))
        except (ImportError, ValueError, TypeError, OSError) as e:
            raise ConfigError(
                f"executor.options.artifacts {url!r} cannot be opened: {e}; "
                "give an fsspec URL such as s3://bucket/folder and install its file system (s3fs, gcsfs, ...) "
                "on driver and nodes"
            ) from None
        self.url, self.root = url, f"{root.rstrip('/')}/{key}"
        self._folders: set[str] = set()

    # one file ---------------------------------------------------------------------------------------------------------

    def _go(self, what: str, act: Callable[[], T]) -> T:
        """`act`, tried again where the network fails; a missing file is FileNotFoundError at once."""
        for left in reversed(range(TRIES)):
            try:
                return act()
            except FileNotFoundError:
                raise
            except Exception as e:  # file systems raise errors of many libraries
                if not left:
                    raise StoreError(
                        f"artifacts {self.url}: cannot {what}: {type(e).__name__}: {e}; check the address, "
                        "credentials and free space, then resume"
                    ) from e
                time.sleep(0.5 * 2 ** (TRIES - 1 - left))
        raise AssertionError

    def _folder(self, path: str) -> None:
        if path not in self._folders:
            self._go(f"make {path}", lambda: self.fs.makedirs(path, exist_ok=True))
            self._folders.add(path)

    def _put(self, source: Path, to: str, size: int) -> int:
        """Upload unless it is there at full length; returns the bytes sent."""

        def there() -> bool:
            try:
                return bool(self.fs.size(to) == size)
            except FileNotFoundError:
                return False

        if self._go(f"look at {to}", there):
            return 0
        self._folder(to.rpartition("/")[0])
        self._go(f"write {to}", lambda: self.fs.put_file(str(source), to))
        return size

    def _get(self, path: str, item: TreeFile, to: Path) -> None:
        """Download to `to` and check; IntegrityError where it is not what was uploaded."""
        to.parent.mkdir(parents=True, exist_ok=True)
        self._go(f"read {path}", lambda: self.fs.get_file(path, str(to)))
        if to.stat().st_size != item.size or sha256_file(to) != item.sha256:
            raise IntegrityError(
                f"artifacts {self.url}: {path} is not what was uploaded ({item.path}, SHA-256 differs)"
            )

    # what trials need -------------------------------------------------------------------------------------------------

    def put_inputs(self, files: Mapping[TreeFile, Path]) -> int:
        """Upload what is not there yet; returns the bytes sent."""
        return sum(self._put(p, f"{self.root}/inputs/{i.sha256}", i.size) for i, p in files.items())

    def get_inputs(self, items: Sequence[TreeFile], to: Path) -> None:
        """The tree below `to`; a tree that is there already is complete, since it appears by a rename."""
        if to.exists():
            return
        to.parent.mkdir(parents=True, exist_ok=True)
        with _staging(to.parent) as staged:
            for item in items:
                try:
                    self._get(f"{self.root}/inputs/{item.sha256}", item, _below(staged, item.path))
                except FileNotFoundError:
                    raise StoreError(
                        f"artifacts {self.url}: {item.path} ({item.sha256[:12]}) is gone; resume uploads it again"
                    ) from None
            try:
                os.rename(staged, to)
            except OSError:
                if not to.exists():  # another trial on this node was first
                    raise

    # snapshots --------------------------------------------------------------------------------------------------------

    def _trial(self, trial: str) -> str:
        return f"{self.root}/trials/{trial}"

    def put_snapshot(self, trial: str, snapshot: Snapshot, files: Mapping[str, Path]) -> int:
        """Upload the blobs, then the snapshot that names them; `files`: path -> where it lies.
        Returns the bytes sent."""
        at = self._trial(trial)
        sent = sum(self._put(files[i.path], f"{at}/blobs/{i.sha256}", i.size) for i in snapshot.items)
        self._folder(at)
        data = snapshot.text().encode()
        self._go(f"write {at}/{snapshot.name}", lambda: self.fs.pipe_file(f"{at}/{snapshot.name}", data))
        return sent + len(data)

    def snapshots(self, trial: str) -> Iterator[Snapshot]:
        """Whole snapshots of a trial, newest attempt and number first."""
        at = self._trial(trial)
        try:
            self.fs.invalidate_cache(at)
            found = self._go(f"list {at}", lambda: self.fs.ls(at, detail=False))
        except FileNotFoundError:
            return
        for path in sorted(
            (p for p in found if p.endswith(".json")), key=lambda p: PurePosixPath(p).name, reverse=True
        ):
            try:
                text = self._go(f"read {path}", lambda path=path: self.fs.cat_file(path))  # type: ignore[misc]
            except FileNotFoundError:
                continue
            if (one := Snapshot.parse(text.decode("utf-8", "replace"))) is not None:
                yield one

    def final(self, trial: str) -> Snapshot | None:
        """The snapshot of the ended trial, None where it has not ended."""
        return next((s for s in self.snapshots(trial) if s.final), None)

    def restore(self, trial: str, run_dir: Path) -> Snapshot | None:
        """Lay the newest snapshot that can be read whole below `run_dir`; None where there is none."""
        for snapshot in self.snapshots(trial):
            try:
                self.fetch(trial, snapshot, run_dir)
            except (FileNotFoundError, IntegrityError):
                continue
            return snapshot
        return None

    def fetch(self, trial: str, snapshot: Snapshot, run_dir: Path) -> None:
        """A snapshot's files in their places below `run_dir`, checked first, the trial's `result.json` last of all.

        What lay in the trial's folders before is replaced. IntegrityError or FileNotFoundError leave it as it was.
        """
        at = self._trial(trial)
        run_dir.mkdir(parents=True, exist_ok=True)
        with _staging(run_dir) as staged:
            for item in snapshot.items:
                self._get(f"{at}/blobs/{item.sha256}", item, _below(staged, item.path))
            for folder in own_folders(trial):
                shutil.rmtree(run_dir / folder, ignore_errors=True)
            for item in sorted(snapshot.items, key=lambda i: i.path.endswith("result.json")):
                to = run_dir / item.path
                to.parent.mkdir(parents=True, exist_ok=True)
                with open(staged / item.path, "rb") as f:
                    os.fsync(f.fileno())
                os.replace(staged / item.path, to)

    def prune(self, trial: str, kept: Sequence[Snapshot], gone: Sequence[Snapshot]) -> None:
        """Delete snapshots and the blobs that none of `kept` names; what cannot be deleted stays."""
        at, needed = self._trial(trial), {i.sha256 for s in kept for i in s.items}
        paths = [f"{at}/{s.name}" for s in gone]
        paths += [f"{at}/blobs/{sha}" for sha in {i.sha256 for s in gone for i in s.items} - needed]
        for path in paths:
            try:
                self.fs.rm_file(path)
            except Exception:
                continue

    def drop(self, trial: str) -> None:
        """Delete all of a trial: its files are in the run folder now."""
        try:
            self.fs.rm(self._trial(trial), recursive=True)
        except FileNotFoundError:
            return
        except Exception as e:
            raise StoreError(f"artifacts {self.url}: cannot delete trial {trial}: {type(e).__name__}: {e}") from e


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix=".arriving-", dir=folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _below(root: Path, path: str) -> Path:
    """A path of a snapshot below `root`; IntegrityError where it would leave it."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise IntegrityError(f"artifacts name the path {path!r}, which leaves the folder it belongs to")
    return root / pure


def own_folders(trial: str) -> tuple[str, ...]:
    """A trial's folders in a run folder."""
    return tuple(str(p) for p in (*store_dirs(Path(), trial), trial_dir(Path(), trial)))

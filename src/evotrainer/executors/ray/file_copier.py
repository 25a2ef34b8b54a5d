"""Consistent copies of a trial's files, taken while the trial writes them."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evotrainer.errors import StoreError
from evotrainer.executors.inputs import TreeFile
from evotrainer.executors.ray.artifacts import own_folders
from evotrainer.records.durable import sha256_file
from evotrainer.records.reading import LOCK

GROWING = ("tail.log", "log.txt")
"""Files that are only appended to: their content at any moment is consistent."""
PASSING = ("lock", LOCK, "places.json", "probe.tmp")
"""Files that belong to a process, not to the trial."""


@dataclass(slots=True)
class FileCopier:
    """Takes consistent copies of a trial's files while the trial writes them: hard links, appended files by length.

    The checkpoint is taken before the rollouts: those a resume would store again are known by their ids,
    those before the checkpoint must not lack.
    """

    run_dir: Path
    trial: str
    known: dict[tuple[int, int, int], str] = field(default_factory=dict)
    """(inode, bytes, ns of the last change) -> SHA-256 of files that do not grow."""

    def take(self, to: Path) -> dict[str, Path]:
        """Path relative to the run folder -> copy below `to`. StoreError where the files never hold still."""
        for _ in range(20):
            shutil.rmtree(to, ignore_errors=True)
            before = self.listing()
            try:
                taken = {
                    path: self._copy(path, to) for path in sorted(before, key=lambda p: not p.startswith("trials/"))
                }
            except FileNotFoundError:  # a checkpoint was replaced meanwhile
                time.sleep(0.05)
                continue
            if self.listing() == before:
                return taken
            time.sleep(0.05)
        raise StoreError(f"trial {self.trial}: its files change too fast to be copied; raise run.checkpoint_every")

    def listing(self) -> dict[str, tuple[int, int, int]]:
        """Identity of every file; what only grows, or is replaced at every step, has none."""
        out: dict[str, tuple[int, int, int]] = {}
        for folder in own_folders(self.trial):
            for at, below, names in os.walk(self.run_dir / folder):  # passes over a folder that goes meanwhile
                below[:] = [b for b in below if not b.startswith(".")]
                for name in names:
                    if name in PASSING or name.endswith(".tmp") or name.startswith("."):
                        continue
                    p = Path(at) / name
                    with contextlib.suppress(FileNotFoundError):
                        s = p.lstat()
                        if stat.S_ISREG(s.st_mode):
                            out[str(p.relative_to(self.run_dir))] = _identity(name, s)
        return out

    def _copy(self, path: str, to: Path) -> Path:
        source, target = self.run_dir / path, to / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.name in GROWING:
            shutil.copyfile(source, target)
        else:
            try:
                os.link(source, target)
            except FileNotFoundError:
                raise
            except OSError:  # no hard links here
                shutil.copyfile(source, target)
        return target

    def items(self, files: Mapping[str, Path]) -> tuple[TreeFile, ...]:
        """The files with checksums; those that did not change since are not read again."""
        out = []
        for path, p in sorted(files.items()):
            s = p.stat()
            key = (s.st_ino, s.st_size, s.st_mtime_ns)
            sha = self.known.get(key) or sha256_file(p)
            if p.name not in GROWING:
                self.known[key] = sha
            out.append(TreeFile(path, sha, s.st_size))
        return tuple(out)


def _identity(name: str, s: os.stat_result) -> tuple[int, int, int]:
    if name == "heartbeat":
        return (0, 0, 0)
    return (s.st_ino, 0, 0) if name in GROWING else (s.st_ino, s.st_size, s.st_mtime_ns)

"""Folders for what must not stay: prompts of gate and cert that a program samples, a server's log."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from evotrainer.trainers.command.process import sweep

PREFIX = "evotrainer-command-"


@contextlib.contextmanager
def passing_folder() -> Iterator[Path]:
    """A folder outside the run, for this user alone; removed at the end. What a kill leaves, the next process that
    drives a command on this machine removes: it is known by a lock that nobody holds any more."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():  # else it was swept before it was locked
            break
        os.close(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep_folders() -> None:
    """End and remove what is left of processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or gone by now
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                sweep(folder)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)

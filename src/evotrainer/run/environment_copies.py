"""Copies the environment's Python files into the run folder, so that one that is edited later can be restored."""

from __future__ import annotations

import shlex
from pathlib import Path

from evotrainer.projections.environment_files import CODE, copy_of
from evotrainer.records.durable import os_errors, replace_synced, sha256_file
from evotrainer.records.regular_file import read_bytes


def copy_file(folder: Path, file: str, sha: str) -> None:
    """Copy a Python file into the run folder, once per content; StoreError where that cannot be written."""
    to = folder / copy_of(file, sha)
    if not file.endswith(CODE) or (to.is_file() and sha256_file(to) == sha):
        return
    with os_errors(f"cannot keep a copy of {file} in {folder}"):
        to.parent.mkdir(parents=True, exist_ok=True)
        replace_synced(to, read_bytes(Path(file)))


def remedies(folder: Path, file: str, sha: str, *, trained: bool = True) -> str:
    """What to do about a file that is not what it was; `trained`: trainings rest on it, so it cannot be taken as it is.

    A copy is named where the run has one that is what it should be.
    """
    copy = folder / copy_of(file, sha)
    back = f" (`{shlex.join(['cp', str(copy), file])}`)" if copy.is_file() and sha256_file(copy) == sha else ""
    restart = f"`evotrainer run {shlex.quote(str(folder / 'task.toml'))}`"
    restored = f"restore it{back}, or start a new run with it as it is now ({restart})"
    again = f"`evotrainer resume {shlex.quote(str(folder))}`"
    if trained:
        return f"{restored}; once restored, {again} goes on"
    return f"{restored}; {again} goes on with either, as no training rests on it yet"

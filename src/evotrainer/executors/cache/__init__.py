"""The cache of trainings and evaluations, shared by runs (docs/cache.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.records.storage_folders import storage_folder
from evotrainer.records.text import counted

if TYPE_CHECKING:
    from evotrainer.config.task import TaskFile
    from evotrainer.executors import Executor

VARIABLE = "EVOTRAINER_CACHE"
"""Environment variable for task files that leave `run.cache` open: a folder, or off."""


def cache_folder(wanted: str = "") -> Path | None:
    """Where trials are kept: `wanted`, else $EVOTRAINER_CACHE, else the user's cache folder; None: nowhere."""
    return storage_folder(wanted, VARIABLE, "XDG_CACHE_HOME", "trials")


def unusable_notice(folder: Path, why: str) -> str:
    """What is told where the cache's folder cannot be used."""
    remedy = f"make it writable, or set run.cache (or ${VARIABLE}) to another folder or off"
    return f"cache {folder} cannot be used ({why}), so the run goes without it and keeps no training there; {remedy}"


def with_cache(executor: Executor, run_dir: Path, task: TaskFile, tell: Callable[[str], None]) -> Executor:
    """An executor that looks into the cache before it lets `executor` compute; `executor` itself where the task file
    or the environment says off, or where the folder cannot be used, which `tell` is told."""
    from evotrainer.executors.cache.executor import CachedExecutor
    from evotrainer.executors.cache.keys import code_id
    from evotrainer.executors.cache.store import TrialCache
    from evotrainer.records.sealed import Key, SealedSplits
    from evotrainer.trainers import TRAINERS

    folder = cache_folder(task.run.cache)
    if folder is None or not TRAINERS[task.trainer.name].repeatable:
        return executor
    cache = TrialCache(folder, code_id(), int(task.run.cache_gb * 2**30))
    try:
        cache.open()
    except OSError as e:
        tell(unusable_notice(folder, e.strerror or str(e)))
        return executor
    size = cache.size()
    if size.entries and size.entries == size.other:
        tell(f"cache {folder}: its {size.entries} entries were computed by other versions of EvoTrainer; none is used")
    if usable := size.entries - size.other:
        used = "takes what it needs and does not compute it again; run.cache=off computes all"
        tell(f"cache {folder}: of {counted(usable, 'entry')} made by earlier runs this one {used}")
    kept = SealedSplits.keys_folder(task.run.keys)
    return CachedExecutor(executor, cache, run_dir, task, tell, Key.of_cache(kept).hold() if kept else None)

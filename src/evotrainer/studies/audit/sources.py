"""Opening a source: a store as it is, a small file into memory, a large one through Parquet parts in the cache."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from functools import cache as once
from itertools import islice
from pathlib import Path
from typing import Any

from evotrainer import importers
from evotrainer.errors import StoreError
from evotrainer.harness.columns.source import InMemoryRollouts, RolloutSource
from evotrainer.importers.base import Skipped
from evotrainer.records.frames import read_tail
from evotrainer.records.output import Progress
from evotrainer.records.reading import TAIL, is_store, stored_parts
from evotrainer.records.regular_file import read_bytes, read_text
from evotrainer.records.rollout import Rollout
from evotrainer.records.sealed import SealedSplits
from evotrainer.records.text import cause
from evotrainer.studies.audit.bulk import FileStretch, ImportResult, bulk_import, stream
from evotrainer.studies.audit.trait_cache import CacheError
from evotrainer.studies.audit.units import OpenedSource, PartRowGroup, part_groups

IN_MEMORY = 20_000
"""Rollouts of one file that are kept as objects; larger files are copied into Parquet parts first."""


def open_source(
    item: FileStretch, cache: Path, workers: int | None = None, say: Progress | None = None
) -> OpenedSource:
    """Units of one source. What is damaged or unknown in it becomes `Skipped`; CacheError where the cache fails."""
    if item.format == "store" and not item.faults:
        return _open_store(item.path)
    done = ImportResult()
    folder = cache / "imports" / _key(item)
    if item.format == "store":  # a folder does not tell whether it has grown
        shutil.rmtree(folder, ignore_errors=True)
    if not (folder / "done.json").is_file():
        first = list(islice(stream([item], done), IN_MEMORY + 1))
        if len(first) <= IN_MEMORY:
            return OpenedSource([InMemoryRollouts(first)] if first else [], done.skipped)
    try:
        skipped = _import(item, folder, workers, say)
    except (StoreError, OSError) as e:
        shutil.rmtree(folder, ignore_errors=True)
        raise CacheError(f"cannot import {item.path} into {cache}: {e}; free space, or give another --cache") from e
    return OpenedSource(list(_groups(folder, skipped)), skipped)


def forget(cache: Path, item: FileStretch) -> None:
    """Drop what was imported of a file, as it is damaged."""
    shutil.rmtree(cache / "imports" / _key(item), ignore_errors=True)


def _key(item: FileStretch) -> str:
    content = f"{item.path.resolve()}\x1f{item.format}\x1f{item.label}"
    content += f"\x1f{_reading()}" + "".join(f"\x1f--fault {c}" for c in item.faults)
    return hashlib.blake2b(content.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


@once
def _reading() -> str:
    """Of what importers make of a file: what other importers imported is imported again."""
    folder = Path(importers.__file__).parent
    return hashlib.blake2b(b"".join(read_bytes(p) for p in sorted(folder.rglob("*.py"))), digest_size=8).hexdigest()


def _import(item: FileStretch, folder: Path, workers: int | None, say: Progress | None) -> list[Skipped]:
    """Bring the parts of a file up to date; what could not be read of it. Errors of reading and writing pass."""
    stat = item.path.stat()
    now = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    if (before := _noted(folder)) and {k: before.get(k) for k in now} == now:
        return [Skipped(*s) for s in before["skipped"]]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    done = bulk_import([item], folder, workers, say)
    note = now | {"skipped": [[s.where, s.reason] for s in done.skipped], "parts": _parts(folder)}
    (folder / "done.json").write_text(json.dumps(note), encoding="utf-8")
    return done.skipped


def _noted(folder: Path) -> dict[str, Any] | None:
    """What the last import noted, None where it or a part it wrote is not as it was."""
    try:
        note = json.loads(read_text(folder / "done.json"))
        return dict(note) if note["parts"] == _parts(folder) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _parts(folder: Path) -> dict[str, int]:
    return {p.name: p.stat().st_size for p in stored_parts(folder)}


def _open_store(path: Path) -> OpenedSource:
    skipped: list[Skipped] = []
    if path.is_file():
        return OpenedSource(list(part_groups(path, skipped)), skipped)
    if SealedSplits.hold_back(path):
        return OpenedSource([], [Skipped(str(path), "a sealed split; its rollouts are read by certification only")])
    rollouts = path / "rollouts"
    folders = [path] if is_store(path) else sorted(f for f in rollouts.glob("*") if f.is_dir() and is_store(f))
    if not folders:
        skipped.append(Skipped(str(path), "the run has no rollouts yet"))
    return open_stores(folders, skipped)


def open_stores(folders: Iterable[Path], skipped: list[Skipped]) -> OpenedSource:
    """The rollouts of store folders; what is damaged goes to `skipped`."""
    parts: list[RolloutSource] = []
    for folder in folders:
        parts += _groups(folder, skipped)
        parts += _tail(folder, skipped)
    return OpenedSource(parts, skipped)


def _groups(folder: Path, skipped: list[Skipped]) -> Iterator[PartRowGroup]:
    for part in stored_parts(folder):
        yield from part_groups(part, skipped)


def _tail(folder: Path, skipped: list[Skipped]) -> Iterator[InMemoryRollouts]:
    from evotrainer.records.arrow_schema import decode

    held: list[Rollout] = []
    try:
        tail = read_tail(folder / TAIL)
        for batch in tail.batches():
            held += decode(batch)
        if complaint := tail.complaint():
            skipped.append(Skipped(str(folder / TAIL), complaint))
    except Exception as e:  # a damaged frame can break the decoder anywhere
        skipped.append(Skipped(str(folder / TAIL), f"damaged: {type(e).__name__}: {cause(e)}"))
    if held:
        yield InMemoryRollouts(held)

"""Opening a source: a store as it is, a small file into memory, a large one through Parquet parts in the cache.

A file of a line format that has only grown since is not imported anew: its new lines become new parts.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
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
from evotrainer.records.regular_file import open_regular, read_bytes, read_text
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import cause
from evotrainer.studies.audit.bulk import FileStretch, Imported, bulk_import, by_lines, stream
from evotrainer.studies.audit.trait_cache import CacheError
from evotrainer.studies.audit.units import Opened, PartRowGroup, part_groups

IN_MEMORY = 20_000
"""Rollouts of one file that are kept as objects; larger files are copied into Parquet parts first."""
EDGE = 65536
"""Bytes of a file's beginning and end by which it is known again."""


def open_source(item: FileStretch, cache: Path, workers: int | None = None, say: Progress | None = None) -> Opened:
    """Units of one source. What is damaged or unknown in it becomes `Skipped`; CacheError where the cache fails."""
    if item.format == "store" and not item.faults:
        return _open_store(item.path)
    done = Imported()
    folder = cache / "imports" / _key(item)
    if item.format == "store":  # a folder does not tell whether it has grown
        shutil.rmtree(folder, ignore_errors=True)
    if not (folder / "done.json").is_file():
        first = list(islice(stream([item], done), IN_MEMORY + 1))
        if len(first) <= IN_MEMORY:
            return Opened([InMemoryRollouts(first)] if first else [], done.skipped)
    try:
        skipped = _import(item, folder, workers, say)
    except (StoreError, OSError) as e:
        shutil.rmtree(folder, ignore_errors=True)
        raise CacheError(f"cannot import {item.path} into {cache}: {e}; free space, or give another --cache") from e
    return Opened(list(_groups(folder, skipped)), skipped)


def forget(cache: Path, item: FileStretch) -> None:
    """Drop what was imported of a file, as it is damaged."""
    shutil.rmtree(cache / "imports" / _key(item), ignore_errors=True)


def _key(item: FileStretch) -> str:
    said = f"{item.path.resolve()}\x1f{item.format}\x1f{item.label}"
    said += f"\x1f{_reading()}" + "".join(f"\x1f--fault {c}" for c in item.faults)
    return hashlib.blake2b(said.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


@once
def _reading() -> str:
    """Of what importers make of a file: what other importers imported is imported again."""
    folder = Path(importers.__file__).parent
    return hashlib.blake2b(b"".join(read_bytes(p) for p in sorted(folder.rglob("*.py"))), digest_size=8).hexdigest()


def _import(item: FileStretch, folder: Path, workers: int | None, say: Progress | None) -> list[Skipped]:
    """Bring the parts of a file up to date; what could not be read of it. Errors of reading and writing pass."""
    now = item.path.stat()
    before = _noted(folder)
    if before and _edges(item.path, before["size"]) == before["edges"]:
        if (now.st_size, now.st_mtime_ns) == (before["size"], before["mtime_ns"]):
            return [Skipped(*s) for s in before["skipped"]]
        if now.st_size > before["size"] and before["ends"] and by_lines(item):
            span = (before["size"], now.st_size, before["lines"])
            done = bulk_import([replace(item, span=span)], folder, workers, say)
            added = [[s.where, s.reason] for s in done.skipped]
            return _note(item.path, folder, before["skipped"] + added, before["lines"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    done = bulk_import([item], folder, workers, say)
    return _note(item.path, folder, [[s.where, s.reason] for s in done.skipped], 0)


def _noted(folder: Path) -> dict[str, Any] | None:
    """What the last import noted, None where it or a part it wrote is not as it was."""
    try:
        note = json.loads(read_text(folder / "done.json"))
        parts = {p.name: p.stat().st_size for p in stored_parts(folder)}
        return dict(note) if note["parts"] == parts and note["lines"] >= 0 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _note(path: Path, folder: Path, skipped: list[list[str]], lines: int) -> list[Skipped]:
    stat = path.stat()
    counted, ends = 0, True
    if path.is_file():
        with open_regular(path) as f:
            while block := f.read(1 << 22):
                counted += block.count(b"\n")
                ends = block.endswith(b"\n")
    note = {
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "edges": _edges(path, stat.st_size),
        "lines": max(lines, counted),
        "ends": ends,
        "skipped": skipped,
        "parts": {p.name: p.stat().st_size for p in stored_parts(folder)},
    }
    (folder / "done.json").write_text(json.dumps(note), encoding="utf-8")
    return [Skipped(*s) for s in skipped]


def _edges(path: Path, size: int) -> str:
    """Hash of the first and of the last EDGE of the first `size` bytes."""
    h = hashlib.blake2b(digest_size=12)
    if path.is_file():
        with open_regular(path) as f:
            h.update(f.read(min(EDGE, size)))
            f.seek(max(0, size - EDGE))
            h.update(f.read(min(EDGE, size)))
    return h.hexdigest()


def _open_store(path: Path) -> Opened:
    skipped: list[Skipped] = []
    if path.is_file():
        return Opened(list(part_groups(path, skipped)), skipped)
    if path.name == "sealed" or path.resolve().parent.name == "sealed":
        return Opened([], [Skipped(str(path), "a sealed split; its rollouts are read by certification only")])
    rollouts = path / "rollouts"
    folders = [path] if is_store(path) else sorted(f for f in rollouts.glob("*") if f.is_dir() and is_store(f))
    if not folders:
        skipped.append(Skipped(str(path), "the run has no rollouts yet"))
    return open_stores(folders, skipped)


def open_stores(folders: Iterable[Path], skipped: list[Skipped]) -> Opened:
    """The rollouts of store folders; what is damaged goes to `skipped`."""
    parts: list[RolloutSource] = []
    for folder in folders:
        parts += _groups(folder, skipped)
        parts += _tail(folder, skipped)
    return Opened(parts, skipped)


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

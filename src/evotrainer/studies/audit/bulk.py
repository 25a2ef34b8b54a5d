"""Bulk import on all cores: large inputs are cut into jobs of some 64 MB,
each read and written by a process of its own (`worker`). The parts of all jobs are put together in the order of the
input.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from evotrainer.errors import StoreError
from evotrainer.importers import IMPORTERS, Skipped, guarded, relabelled
from evotrainer.importers.base import format_of
from evotrainer.importers.lenient_json import SPAN, is_compressed
from evotrainer.records.durable import replace_synced
from evotrainer.records.ingest import ingest
from evotrainer.records.output import Progress
from evotrainer.records.reading import read_checksum, stored_parts
from evotrainer.records.regular_file import open_regular
from evotrainer.records.rollout import Rollout
from evotrainer.studies.audit.fault_columns import marked
from evotrainer.studies.audit.worker import WorkerError, Workers, serve

JOB_BYTES = 64 << 20
Span = tuple[int, int, int]
"""First byte, byte after the last, lines before."""


@dataclass(frozen=True, slots=True)
class FileStretch:
    """A file, or a range of its lines."""

    path: Path
    format: str
    label: str = ""
    span: Span | None = None
    faults: tuple[str, ...] = ()
    """Columns that make faults (`fault_columns`)."""


@dataclass(slots=True)
class ImportResult:
    rollouts: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    skipped: list[Skipped] = field(default_factory=list)


def stream(items: Iterable[FileStretch], done: ImportResult) -> Iterator[Rollout]:
    """Rollouts of the items in order; counts and skips go to `done`."""
    for item in items:
        token = SPAN.set(item.span)
        try:
            importer = IMPORTERS[item.format]
            for record in guarded(importer, item.path):
                if isinstance(record, Skipped):
                    done.skipped.append(record)
                else:
                    done.formats[item.format] += 1
                    done.rollouts += 1
                    yield relabelled(importer, marked(record, item.faults), item.label)
        finally:
            SPAN.reset(token)


def bulk_import(
    items: Sequence[FileStretch],
    folder: Path,
    workers: int | None = None,
    say: Progress | None = None,
) -> ImportResult:
    """Write the items' rollouts to the store `folder` as new parts, on all cores where they are large.

    StoreError where it cannot write; then nothing of this import is in the store.
    """
    jobs = plan(items)
    done = ImportResult()
    cores = min(workers or len(os.sched_getaffinity(0)), len(jobs))
    scratch = folder / f".import-{os.getpid()}"
    for left in folder.glob(".import-*"):  # of an import that was killed
        if not Path(f"/proc/{left.name.removeprefix('.import-')}").exists():
            shutil.rmtree(left, ignore_errors=True)
    try:
        if cores < 2:
            ingest(stream(items, done), scratch)
        else:
            with Workers("evotrainer.studies.audit.bulk") as processes, ThreadPoolExecutor(cores) as pool:
                folders = (scratch / f"{i:06d}" for i in range(len(jobs)))
                answers = pool.map(partial(_asked, processes), jobs, folders)
                for i, answer in enumerate(answers, 1):
                    done.rollouts += answer["rollouts"]
                    done.formats.update(answer["formats"])
                    done.skipped += [Skipped(where, reason) for where, reason in answer["skipped"]]
                    if say:
                        say("importing", i, len(jobs))
        _adopt(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return done


def _asked(processes: Workers, items: list[FileStretch], folder: Path) -> dict[str, Any]:
    """Have one job done; StoreError with the worker's last line where it fails."""
    job = {"folder": str(folder), "items": [[str(i.path), i.format, i.label, i.span, i.faults] for i in items]}
    try:
        return processes.ask(job)
    except WorkerError as e:
        raise StoreError(f"importing {items[0].path} failed: {e}; nothing was kept") from None


def plan(items: Sequence[FileStretch]) -> list[list[FileStretch]]:
    """Jobs of some JOB_BYTES each, in order: files of a line format are cut, small ones are put together."""
    jobs: list[list[FileStretch]] = [[]]
    held = 0
    for item in items:
        for piece, size in _pieces(item):
            if held and held + size > JOB_BYTES:
                jobs.append([])
                held = 0
            jobs[-1].append(piece)
            held += size
    return [j for j in jobs if j]


def _pieces(item: FileStretch) -> Iterator[tuple[FileStretch, int]]:
    size = item.path.stat().st_size if item.path.is_file() else JOB_BYTES
    if size <= JOB_BYTES or not by_lines(item):
        yield item, size
        return
    at = before = 0
    with open_regular(item.path) as f:
        while at < size:
            count = 0
            left = JOB_BYTES
            end = at
            while left > 0 and (block := f.read(min(left, 1 << 20))):
                count += block.count(b"\n")
                end += len(block)
                left -= len(block)
            rest = f.readline() if left <= 0 else b""
            count += rest.endswith(b"\n")
            end += len(rest)
            if end == at:
                break
            yield FileStretch(item.path, item.format, item.label, (at, end, before), item.faults), end - at
            at, before = end, before + count


def by_lines(item: FileStretch) -> bool:
    """Is it a plain file of JSON objects, one a line, rather than one array?"""
    if not format_of(IMPORTERS[item.format]).by_lines or is_compressed(item.path):
        return False
    with open_regular(item.path) as f:
        return f.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"


def _adopt(scratch: Path, folder: Path) -> None:
    """Move the parts of all jobs into the store, in order."""
    number = 1 + max((int(p.stem.removeprefix("part-")) for p in stored_parts(folder)), default=-1)
    for part in sorted(p for f in (scratch, *sorted(scratch.glob("*"))) if f.is_dir() for p in stored_parts(f)):
        target = folder / f"part-{number:05d}.parquet"
        note = f"{read_checksum(part) or ''}  {target.name}\n"
        try:
            replace_synced(target.with_name(target.name + ".sha256"), note.encode())
            os.replace(part, target)
        except OSError as e:
            raise StoreError(
                f"cannot write {target}: {e.strerror}; free space or fix permissions, then import again"
            ) from e
        number += 1


def import_job(job: dict[str, Any]) -> dict[str, Any]:
    """In a worker: write the rollouts of one job to a folder; how many, of which formats, and what was skipped."""
    done = ImportResult()
    items = (FileStretch(Path(p), f, label, span and tuple(span), tuple(c)) for p, f, label, span, c in job["items"])
    ingest(stream(items, done), Path(job["folder"]))
    skipped = [[s.where, s.reason] for s in done.skipped]
    return {"rollouts": done.rollouts, "formats": done.formats, "skipped": skipped}


if __name__ == "__main__":
    raise SystemExit(serve(import_job))

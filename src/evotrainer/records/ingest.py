"""Bulk import into a rollout store: Parquet parts written straight from a stream, without the durable tail.

What is being imported lies elsewhere already, so a crash loses nothing: the part that was being written is a `.tmp` and
the import is begun again. Rows of a part come in the order of the stream.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.errors import StoreError
from evotrainer.records.arrow_schema import arrow_schema, encode, scrub
from evotrainer.records.durable import fsync, os_errors, replace_synced, sha256_file
from evotrainer.records.reading import stored_parts
from evotrainer.records.rollout import Rollout
from evotrainer.records.store import ROW_GROUP, parquet_options

if TYPE_CHECKING:
    import pyarrow as pa

PART_ROWS = 8 * ROW_GROUP


def batches(rollouts: Iterable[Rollout], size: int = ROW_GROUP) -> Iterator[pa.RecordBatch]:
    """Record batches of up to `size` rollouts; lone surrogates are replaced."""
    stream = iter(rollouts)
    while some := list(islice(stream, size)):
        try:
            yield encode(some)
        except UnicodeEncodeError:
            yield encode([scrub(r) for r in some])


def ingest(rollouts: Iterable[Rollout], folder: Path) -> int:
    """Append rollouts to the store `folder` as new parts; returns how many. StoreError where it cannot write.

    Ids are not compared with what is there: readers count an id once.
    """
    return write_batches(batches(rollouts), folder)


def write_batches(stream: Iterable[pa.RecordBatch], folder: Path) -> int:
    """The same of record batches of `arrow_schema()`."""
    with os_errors(f"cannot write rollouts to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(p.stem.removeprefix("part-")) for p in stored_parts(folder)), default=-1)
    total = 0
    it = iter(stream)
    first = next(it, None)
    while first is not None:
        rows, first = _write_part(folder / f"part-{number:05d}.parquet", first, it)
        total += rows
        number += 1
    return total


def _write_part(path: Path, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> tuple[int, pa.RecordBatch | None]:
    """Write up to PART_ROWS rows; returns (rows, the batch that begins the next part)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    options = parquet_options()
    options.pop("row_group_size")
    temporary = path.with_name(path.name + ".tmp")
    rows, following = 0, None
    with os_errors(f"cannot write {path}"):
        try:
            with temporary.open("wb") as f:
                with pq.ParquetWriter(f, arrow_schema(), **options) as writer:
                    batch: pa.RecordBatch | None = first
                    while batch is not None:
                        writer.write_batch(batch, row_group_size=ROW_GROUP)
                        rows += batch.num_rows
                        batch = next(rest, None)
                        if batch is not None and rows + batch.num_rows > PART_ROWS:
                            following, batch = batch, None
                f.flush()
                os.fsync(f.fileno())
        except pa.ArrowException as e:
            raise StoreError(f"cannot write {path}: {e}; the records do not fit the rollout schema") from e
        replace_synced(path.with_name(path.name + ".sha256"), f"{sha256_file(temporary)}  {path.name}\n".encode())
        os.replace(temporary, path)
        fsync(path.parent)
    return rows, following

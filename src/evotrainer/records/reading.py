"""Reading rollouts: a lazy Polars scan for analytics, `load` for whole rollouts, `check_folder` for `verify`.

Readers take no lock. They read the tail before they list the parts: a seal in between shows its rows twice, which
de-duplication by id removes, and never not at all.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import EncryptedError, IntegrityError, StoreError
from evotrainer.records import caps
from evotrainer.records.arrow_schema import arrow_schema, check_version, decode
from evotrainer.records.durable import os_trouble, sha256_file
from evotrainer.records.frames import Tail, read_tail
from evotrainer.records.regular_file import check_regular, read_bytes, read_text
from evotrainer.records.rollout import Rollout
from evotrainer.records.sealed import SealedSplits
from evotrainer.records.text import cause, counted

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

TAIL = "tail.log"
LOCK = "writer.lock"
PART_GLOB = "part-*.parquet"


def stored_parts(folder: Path) -> list[Path]:
    """Parts of a folder, oldest first; UnreadableError where one is no regular file."""
    found = sorted([*folder.glob(PART_GLOB), *folder.glob(f"part-*{SealedSplits.SUFFIX}")])
    for part in found:
        check_regular(part)
    return found


def is_store(folder: Path) -> bool:
    """Whether a folder holds rollouts of ours."""
    return (folder / TAIL).exists() or bool(stored_parts(folder))


def read_checksum(part: Path) -> str | None:
    """SHA-256 noted in the file next to a part; None where that is missing or unreadable."""
    try:
        words = read_text(part.with_name(part.name + ".sha256")).split()
    except (OSError, UnicodeDecodeError):
        return None
    return words[0] if words else None


def open_part(path: Path) -> pq.ParquetFile:
    """Open a part; page checksums are verified on reading. IntegrityError where it is no intact Parquet file,
    EncryptedError where it cannot be read yet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        source = SealedSplits.parquet(path)
        given = pa.BufferReader(source) if isinstance(source, bytes) else source
        file = pq.ParquetFile(given, page_checksum_verification=True)
        caps.check_parquet(source)
    except EncryptedError:
        raise
    except Exception as e:
        raise _part_trouble(path, e) from e
    check_version(file.schema_arrow, str(path))
    if not file.schema_arrow.equals(arrow_schema()):
        raise IntegrityError(f"{path} is damaged (its columns are not those of its version); restore a copy")
    return file


def _part_trouble(path: Path, e: Exception) -> StoreError:
    if isinstance(e, caps.TooLargeError):
        return StoreError(f"{path}: {e}")
    if isinstance(e, OSError) and e.errno:
        return os_trouble(f"cannot read {path}", e)
    return IntegrityError(f"{path} is damaged ({cause(e)}); restore a copy, `evotrainer verify` lists all damage")


def row_group(file: pq.ParquetFile, path: Path, i: int, columns: list[str] | None = None) -> pa.Table:
    """A row group as a table; it is read a few rows at a time where its encoding may hide its true size."""
    import pyarrow as pa

    try:
        rows = file.metadata.row_group(i).num_rows
        read = list(caps.batches(file, SealedSplits.parquet(path), [i], columns, most=max(1, rows)))
        return pa.Table.from_batches(read) if read else file.read_row_group(i, columns=columns, use_threads=False)
    except Exception as e:
        raise _part_trouble(path, e) from e


def _check_size(path: Path) -> None:
    """StoreError for a part that holds more than a file of its size may; damage is left to the reader to find."""
    try:
        caps.check_parquet(SealedSplits.parquet(path))
    except caps.TooLargeError as e:
        raise _part_trouble(path, e) from e
    except (OSError, ValueError):
        return


def row_count(path: Path) -> int:
    """Rows of a part."""
    with open_part(path) as file:
        return int(file.metadata.num_rows)


def part_ids(path: Path) -> set[str]:
    """Ids of a part's rollouts."""
    with open_part(path) as file:
        groups = range(file.num_row_groups)
        return {i for g in groups for i in row_group(file, path, g, ["id"]).column("id").to_pylist()}


def _sound_tail(folder: Path) -> Tail:
    """The tail of a folder; an incomplete last frame is a writer at work. IntegrityError for damage."""
    tail = read_tail(folder / TAIL)
    if complaint := tail.complaint():
        raise IntegrityError(f"{complaint}; restore a copy, `evotrainer verify` lists all damage")
    return tail


def _folders(folders: Iterable[Path | str]) -> list[Path]:
    """Each folder once, whatever path leads to it; StoreError where one is missing."""
    unique = {Path(f).resolve(): Path(f) for f in folders}
    for resolved, given in unique.items():
        if not resolved.is_dir():
            raise StoreError(f"no rollout folder {given}; check the path")
    return list(unique.values())


def scan(folders: Iterable[Path | str]) -> pl.LazyFrame:
    """Lazy frame over the parts and tails of store folders, one row per rollout id, columns as published.

    Parts are read lazily and damage in one surfaces at `collect()`. Row order is not defined.
    """
    import polars as pl

    listed = _folders(folders)
    tails = [batch for f in listed for batch in _sound_tail(f).batches()]
    parts = [p for f in listed for p in stored_parts(f)]
    for p in parts:
        _check_size(p)
    frames = [pl.scan_parquet(open_)] if (open_ := [p for p in parts if p.suffix != SealedSplits.SUFFIX]) else []
    frames += [pl.read_parquet(_stream(p)).lazy() for p in parts if p.suffix == SealedSplits.SUFFIX]
    if tails or not parts:
        import pyarrow as pa

        table = pa.Table.from_batches(tails, arrow_schema())
        frames.append(pl.DataFrame(pl.from_arrow(table)).lazy())
    whole = pl.concat(frames)
    ids = whole.select(rows=pl.len(), ids=pl.col("id").n_unique()).collect()
    return whole.unique("id", keep="any") if ids["rows"][0] != ids["ids"][0] else whole


def _stream(part: Path) -> io.BytesIO:
    """An encrypted part as Parquet."""
    source = SealedSplits.parquet(part)
    assert isinstance(source, bytes)
    return io.BytesIO(source)


def columns_of(folder: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of a store folder, piece by piece in stored order; an interrupted seal shows its rows twice."""
    import pyarrow as pa

    tail = _sound_tail(folder)
    for path in stored_parts(folder):
        with open_part(path) as file:
            for i in range(file.num_row_groups):
                yield row_group(file, path, i, list(columns))
    for batch in tail.batches():
        yield pa.Table.from_batches([batch]).select(list(columns))


def noted_rows(folder: Path, column: str, text: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of a store folder in whose `column` a text stands, as plain values of `columns`. A trial reads its
    own rollouts with this: Polars starts threads, which a process that was forked does not have."""
    import pyarrow.compute as pc

    for table in columns_of(folder, columns):
        yield from table.filter(pc.fill_null(pc.match_substring(table[column], text), False)).to_pylist()


def load(
    folders: Iterable[Path | str],
    ids: Collection[str] | None = None,
    split: str | None = None,
    step: int | None = None,
    limit: int | None = None,
) -> list[Rollout]:
    """Rollouts as they were stored, oldest first, each id once; the filters are combined by `and`."""
    out: list[Rollout] = []
    for batch in read_batches(folders, ids, split, None if step is None else [step]):
        if limit is not None and len(out) >= limit:
            break
        out += decode(batch if limit is None else batch.slice(0, limit - len(out)))
    return out


def read_batches(
    folders: Iterable[Path | str],
    ids: Collection[str] | None = None,
    split: str | None = None,
    steps: Collection[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """What `load` reads, as record batches of `arrow_schema()`."""
    import pyarrow as pa

    seen: set[str] = set()
    for batch in _batches(_folders(folders), None if ids is None else set(ids), split, steps):
        found = batch.column("id").to_pylist()
        fresh = dict.fromkeys(i for i in found if i not in seen)
        if len(fresh) < len(found):
            first = {i: n for n, i in reversed(list(enumerate(found))) if i in fresh}
            batch = batch.take(pa.array(sorted(first.values()), pa.int64()))
        seen.update(fresh)
        if batch.num_rows:
            yield batch


def _batches(
    folders: Sequence[Path], ids: set[str] | None, split: str | None, steps: Collection[int] | None
) -> Iterator[pa.RecordBatch]:
    """Record batches with the wanted rows only."""
    if ids is not None and not ids:
        return
    for folder in folders:
        tail = _sound_tail(folder)
        for path in stored_parts(folder):
            with open_part(path) as file:
                for g in range(file.num_row_groups):
                    mask = _mask(row_group(file, path, g, ["id", "split", "step"]), ids, split, steps)
                    if mask is None or mask.true_count:
                        table = row_group(file, path, g)
                        yield from (table if mask is None else table.filter(mask)).to_batches()
        for batch in tail.batches():
            mask = _mask(batch, ids, split, steps)
            yield batch if mask is None else batch.filter(mask)


def _mask(
    rows: pa.Table | pa.RecordBatch, ids: set[str] | None, split: str | None, steps: Collection[int] | None
) -> pa.BooleanArray | None:
    """Which rows are wanted; None: all."""
    import pyarrow as pa
    import pyarrow.compute as pc

    mask = None
    for name, values in (("id", ids), ("split", None if split is None else [split]), ("step", steps)):
        if values is not None:
            kind = pa.int64() if name == "step" else pa.string()
            found = pc.is_in(rows.column(name), pa.array(sorted(values), kind))
            mask = found if mask is None else pc.and_(mask, found)
    return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask


def readable(folder: Path) -> bool:
    """Can what a store folder holds be read here? Not while it is encrypted, and nobody told the key."""
    try:
        for part in stored_parts(folder)[:1]:
            open_part(part).close()
        next(read_tail(folder / TAIL).batches(), None)
    except EncryptedError:
        return False
    except StoreError:  # damage is told by whoever reads it
        return True
    return True


def check_folder(folder: Path, seen: dict[str, Path] | None = None) -> tuple[list[str], int]:
    """Problems of a store folder, read whole, and the number of its rollouts.

    Checks each part against its checksum, every page, every frame, and that no id is stored twice; `seen` (id -> file)
    carries the ids from folder to folder. What is encrypted and cannot be read yet is compared with its checksums only.
    """
    problems: list[str] = []
    seen = {} if seen is None else seen
    tail = read_tail(folder / TAIL)
    rows = 0
    for path in stored_parts(folder):
        try:
            problems += _check_part(path)
            ids = part_ids(path)
        except EncryptedError:
            continue
        except StoreError as e:
            problems.append(str(e))
            continue
        rows += len(ids)
        problems += _twice(ids, path, seen)
    if complaint := tail.complaint():
        problems.append(complaint)
    try:
        waiting = [i for b in tail.batches() for i in b.column("id").to_pylist()]
    except EncryptedError:
        waiting = []
    except StoreError as e:
        return [*problems, str(e)], rows
    # An interrupted seal leaves its rows in part and tail; the next writer finishes it, readers see them once.
    waiting = [i for i in waiting if i not in seen or seen[i].parent != folder]
    return problems + _twice(waiting, tail.path, seen), rows + len(waiting)


def _twice(ids: Iterable[str], path: Path, seen: dict[str, Path]) -> list[str]:
    repeated = [i for i in ids if seen.setdefault(i, path) != path]
    if not repeated:
        return []
    return [f"{path}: {counted(len(repeated), 'rollout')} stored twice, e.g. {repeated[0]} also in {seen[repeated[0]]}"]


def _check_part(path: Path) -> list[str]:
    noted = read_checksum(path)
    if noted is None:
        return [f"{path}: its checksum file is missing"]
    if noted != sha256_file(path):
        return [f"{path} does not match its checksum; restore a copy"]
    if read_bytes(path.with_name(path.name + ".sha256")) != f"{noted}  {path.name}\n".encode():
        return [f"{path}: its checksum file is damaged; restore a copy"]
    with open_part(path) as file:
        for g in range(file.num_row_groups):
            row_group(file, path, g)
    return []

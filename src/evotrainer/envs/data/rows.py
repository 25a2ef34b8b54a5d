"""Rows of a local file, and errors for malformed ones."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from evotrainer.envs.base import SPLITS
from evotrainer.errors import TaskSetError
from evotrainer.records import caps
from evotrainer.records.regular_file import open_regular
from evotrainer.records.text import counted

Row = Mapping[str, Any]
SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
"""Files that are read here; all but Parquet also with .gz behind."""


def form_of(path: Path) -> str:
    """The suffix that says how a file is read, `.gz` aside; empty for another kind of file."""
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    return suffix if suffix in SUFFIXES and not (path.suffix == ".gz" and suffix == ".parquet") else ""


def read_file(path: Path) -> list[Row]:
    """Rows of a .jsonl, .json (a list of objects), .csv (also .gz) or .parquet file;
    TaskSetError names file and line."""
    form = form_of(path)
    if form == ".parquet":
        return _parquet(path)
    if form == ".csv":
        return _csv(path, _text(path))
    if form == ".json":
        return _json(path, _text(path))
    return read_jsonl(path)


def read_jsonl(path: Path) -> list[Row]:
    """Objects of a .jsonl or .jsonl.gz file; TaskSetError names file and line."""
    return list(_objects(path, _text(path).split("\n")))


def _text(path: Path) -> str:
    try:
        with caps.open_gzip(path) if path.suffix == ".gz" else open_regular(path) as f:
            return f.read().decode("utf-8-sig")
    except caps.TooLargeError as e:
        raise TaskSetError(f"{path}: {e}") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as e:
        raise TaskSetError(
            f"cannot read {path}: {e}; give a {', '.join(SUFFIXES)} file, text as UTF-8, or .jsonl.gz"
        ) from None


def _json(path: Path, text: str) -> list[Row]:
    """A list of objects, alone or under `data`; a file of one object a line is read as such."""
    try:
        caps.check_json(text)
        found = json.loads(text)
    except caps.TooLargeError as e:
        raise TaskSetError(f"{path}: {e}") from None
    except (ValueError, RecursionError) as e:
        lines = text.split("\n")
        if text.lstrip().startswith("{") and len(lines) > 1:
            return list(_objects(path, lines))
        raise TaskSetError(f"cannot read {path}: {e}; give a JSON list of objects") from None
    if isinstance(found, dict):
        found = found.get("data", [found])
    if not isinstance(found, list) or not found or not all(isinstance(r, dict) for r in found):
        raise TaskSetError(f"{path} is no JSON list of objects; write one object per row")
    return found


def _csv(path: Path, text: str) -> list[Row]:
    """Rows of a CSV file with a header; every value is text, an empty one None."""
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[Row] = []
    try:
        header = next(reader, [])
        if not header or len(set(header)) != len(header):
            raise TaskSetError(f"{path}: the first line must hold the columns' names, each once; it is {header[:6]}")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise TaskSetError(
                    f"{path}, line {reader.line_num}: {counted(len(cells), 'cell')} under "
                    f"{counted(len(header), 'column')}; correct the row"
                )
            rows.append({k: v or None for k, v in zip(header, cells, strict=True)})
    except csv.Error as e:
        raise TaskSetError(f"{path}, line {reader.line_num}: not CSV ({e}); correct the row") from None
    return rows


def _parquet(path: Path) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return [row for batch in caps.batches(file, path) for row in batch.to_pylist()]
    except caps.TooLargeError as e:
        raise TaskSetError(f"{path}: {e}") from None
    except (OSError, ValueError, pa.ArrowException) as e:
        raise TaskSetError(f"cannot read {path}: {str(e).splitlines()[0]}; give a Parquet file of rows") from None


def _objects(path: Path, lines: Sequence[str]) -> Iterator[Row]:
    values = 0
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = caps.check_json(line, values)
            row = json.loads(line)
        except caps.TooLargeError as e:
            raise TaskSetError(f"{path}, line {n}: {e}") from None
        except (ValueError, RecursionError) as e:
            raise TaskSetError(f"{path}, line {n}: not JSON ({e}); write one object per line") from None
        if not isinstance(row, dict):
            raise TaskSetError(f"{path}, line {n}: {type(row).__name__} instead of an object with named fields")
        yield row


def renamed(rows: Sequence[Row], columns: Mapping[str, str], path: str) -> Sequence[Row]:
    """The rows with `columns` (new name -> name there) renamed. TaskSetError for a column that a row lacks, for one
    that gets two names, and for a new name that another column has."""
    old = {there: name for name, there in columns.items()}
    if len(old) < len(columns):
        raise TaskSetError(f"{path}: environment.columns gives one column two names: {', '.join(columns.values())}")
    for n, row in enumerate(rows if old else (), 1):
        if lacking := next((c for c in old if c not in row), None):
            raise TaskSetError(
                f"{path}, row {n}: environment.columns names the column {lacking!r}; there are: {', '.join(row)}"
            )
        if taken := next((c for c in columns if c in row and c not in old), None):
            raise TaskSetError(
                f"{path}, row {n}: environment.columns renames {columns[taken]!r} to {taken!r}, and there is such "
                "a column already; rename that one, too, or drop it from the rows"
            )
    return [{old.get(k, k): v for k, v in r.items()} for r in rows] if old else rows


def field(row: Row, name: str, kind: type, where: str) -> Any:
    """A field of the given type; TaskSetError with the row otherwise."""
    if name not in row:
        raise TaskSetError(f"{where}: field {name!r} is missing; it has: {', '.join(map(str, row))}{near(name, row)}")
    value = row[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TaskSetError(f"{where}: field {name!r} is {type(value).__name__}, {kind.__name__} expected")
    return value


def near(name: str, there: Iterable[Any]) -> str:
    """`; did you mean 'x'?` where a name is close to this one, else nothing."""
    close = {str(x).lower(): str(x) for x in there}
    found = get_close_matches(name.lower(), close, n=1, cutoff=0.6)
    return f"; did you mean {close[found[0]]!r}?" if found else ""


def listed(row: Row, name: str, where: str) -> list[Any]:
    """A list, or a list as JSON text (as CSV and many published columns hold it)."""
    if name not in row:
        field(row, name, list, where)
    value = row[name]
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise TaskSetError(f"{where}: field {name!r} is no list, nor one as JSON text; correct the row") from None
    if not isinstance(value, (list, tuple)):
        raise TaskSetError(f"{where}: field {name!r} is {type(value).__name__}, list expected")
    return list(value)


def check_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """Shares of the splits, normalised to sum 1."""
    unknown = sorted(set(shares) - set(SPLITS))
    if unknown:
        raise TaskSetError(f"splits: unknown split {unknown[0]!r}; the splits are {', '.join(SPLITS)}")
    if not shares or not all(v >= 0 for v in shares.values()) or not (total := sum(shares.values())):
        raise TaskSetError(f"splits: shares must be positive numbers, not {dict(shares)}")
    return {s: shares[s] / total for s in SPLITS if shares.get(s)}


def split_of(key: str, shares: Mapping[str, float]) -> str:
    """The split a row belongs to, by a stable hash of its key: it does not depend on the other rows."""
    point = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") / 2**64
    for split, share in shares.items():
        if point < share:
            return split
        point -= share
    return next(reversed(list(shares)))

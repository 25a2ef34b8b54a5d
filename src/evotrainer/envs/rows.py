"""Rows of a local file or of a Hugging Face data set, and what a malformed one is answered with."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evotrainer.envs.base import SPLITS
from evotrainer.errors import TaskSetError

Row = Mapping[str, Any]


def read_jsonl(path: Path) -> list[Row]:
    """Objects of a .jsonl or .jsonl.gz file; TaskSetError names file and line."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = raw.decode("utf-8").split("\n")
    except (OSError, EOFError, UnicodeDecodeError) as e:
        raise TaskSetError(f"cannot read {path}: {e}; give a .jsonl file, UTF-8, or .jsonl.gz") from None
    return list(_objects(path, lines))


def _objects(path: Path, lines: Sequence[str]) -> Iterator[Row]:
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as e:
            raise TaskSetError(f"{path}, line {n}: not JSON ({e}); write one object per line") from None
        if not isinstance(row, dict):
            raise TaskSetError(f"{path}, line {n}: {type(row).__name__} instead of an object with named fields")
        yield row


def load_rows(path: str, hf_config: str | None = None, hf_split: str = "test") -> list[Row]:
    """Rows of a local file, of a local data set folder, or of a Hugging Face id; never empty."""
    if not path:
        raise TaskSetError("environment.path is empty; give a local .jsonl file or a Hugging Face id")
    p = Path(path).expanduser()
    if p.is_file():
        rows = read_jsonl(p)
    elif p.is_dir() or not _looks_local(path):
        rows = _load_hf(path, hf_config, hf_split)
    else:
        raise TaskSetError(f"no file {path}; give a local .jsonl file or a Hugging Face id such as org/name")
    if not rows:
        raise TaskSetError(f"{path} has no rows; give a file with one task per line")
    return rows


def _looks_local(path: str) -> bool:
    return path.startswith((".", "/", "~")) or path.endswith((".jsonl", ".gz", ".json")) or path.count("/") > 1


def _load_hf(path: str, config: str | None, split: str) -> list[Row]:
    try:
        import datasets
    except ImportError:
        raise TaskSetError(
            f"{path} looks like a Hugging Face data set, which needs the `datasets` package; "
            "pip install 'evotrainer[hf]', or give a local .jsonl file"
        ) from None
    try:
        return [dict(r) for r in datasets.load_dataset(path, config, split=split)]
    except Exception as e:  # the library raises whatever its many back ends raise
        cause = str(e).strip().split("\n")[0]
        raise TaskSetError(
            f"data set {path} (config {config}, split {split}) cannot be loaded: {type(e).__name__}: {cause}; "
            "check the id, hf_config and hf_split, or give a local .jsonl file"
        ) from None


def field(row: Row, name: str, kind: type, where: str) -> Any:
    """A field of the given type; TaskSetError with the row otherwise."""
    if name not in row:
        raise TaskSetError(f"{where}: field {name!r} is missing; it has: {', '.join(map(str, row))}")
    value = row[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TaskSetError(f"{where}: field {name!r} is {type(value).__name__}, {kind.__name__} expected")
    return value


def check_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """Shares of the splits, normalised to sum 1."""
    unknown = sorted(set(shares) - set(SPLITS))
    if unknown:
        raise TaskSetError(f"splits: unknown split {unknown[0]!r}; the splits are {', '.join(SPLITS)}")
    if not shares or any(v < 0 for v in shares.values()) or not (total := sum(shares.values())):
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

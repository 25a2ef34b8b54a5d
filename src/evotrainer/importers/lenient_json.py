"""Reading JSON that others wrote, with everything that can be wrong with it."""

from __future__ import annotations

import gzip
import json
import math
import sys
import zlib
from collections.abc import Iterator
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from typing import IO, Any

import orjson

from evotrainer.errors import StoreError
from evotrainer.records.caps import check_json, open_gzip
from evotrainer.records.regular_file import open_regular, read_bytes

MAX_LINE = 64 * 2**20
"""Bytes above which one line is not read but reported."""
MAX_FILE = 2**30
"""Bytes above which a file that is one JSON value is not read but reported."""
FIRST_LINES = 20
"""Non-empty lines among which the first JSON object of a file is looked for."""
BLANK = b"\xef\xbb\xbf \t\r\n"
"""What may stand before the first value of a file: a byte order mark, white space."""
GZIP = b"\x1f\x8b"
PACKED = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x04\x22\x4d\x18": "lz4"}
"""First bytes of compressed files that are not read."""
TORN = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a damaged gzip file raises."""


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed with gzip: its lines are read like those of any other, but it cannot be cut into
    stretches of bytes. False for what cannot be opened."""
    try:
        if not path.is_file():
            return False
        with open_regular(path) as f:
            return f.read(2) == GZIP
    except OSError:
        return False


def packed(path: Path) -> str | None:
    """Name of the compression of a file that has to be unpacked before it can be read; None for any other."""
    with open_regular(path) as f:
        head = f.read(8)
    return next((name for magic, name in PACKED.items() if head.startswith(magic)), None)


def opened(path: Path) -> IO[bytes]:
    """The file for reading, through gzip where it is compressed so;
    reading then may raise one of TORN, or TooLargeError."""
    return open_gzip(path) if is_compressed(path) else open_regular(path)


def beginning(path: Path, size: int) -> bytes:
    """The first bytes of a file, unpacked; fewer where a compressed file is torn there."""
    out = b""
    with opened(path) as f:
        try:
            # in small blocks: a torn gzip file gives all before the tear, one large read would give nothing
            while len(out) < size and (block := f.read(min(4096, size - len(out)))):
                out += block
        except TORN:
            pass
    return out


def content(path: Path, limit: int, advice: str) -> bytes:
    """All bytes of a file, unpacked; ValueError with `advice` where they are more than `limit`, or where it is torn."""
    too_large = f"larger than {limit >> 20} MiB in one JSON value; {advice}"
    # the packed size first: a file that is too large even so is not unpacked to find out
    if path.stat().st_size > limit:
        raise ValueError(too_large)
    if not is_compressed(path):
        return read_bytes(path, limit)
    out = bytearray()
    try:
        with opened(path) as f:
            while block := f.read(1 << 20):
                out += block
                if len(out) > limit:
                    raise ValueError(too_large)
    except TORN as e:
        raise ValueError(f"the gzip file is damaged ({e}); was it cut off while written or copied?") from None
    return bytes(out)


def parse(data: bytes | str, constants: bool = False) -> Any:
    """JSON to Python; bad UTF-8 is replaced, a leading BOM is dropped; NaN and infinities become None, or with
    `constants` the words "NaN", "Infinity" and "-Infinity".

    Raises ValueError with a short cause, also for nesting too deep to follow and for more values than memory holds.
    """
    # before any parser: depth and size are what makes one run out of memory or stack
    check_json(data)
    try:
        return orjson.loads(data)
    except ValueError:
        pass  # it refuses more than json does: NaN, bad UTF-8, a BOM, lone surrogates
    text = data.decode("utf-8", errors="replace") if isinstance(data, bytes) else data
    try:
        return json.loads(text.removeprefix("\ufeff"), parse_constant=lambda word: word if constants else None)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError as e:
        raise ValueError(f"{e.msg} at character {e.pos}") from None


def from_text(value: Any, otherwise: Any = None) -> Any:
    """JSON inside a string, opened, or `otherwise` where the string is none; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return parse(value)
    except ValueError:
        return otherwise


def conversation(value: Any) -> Any:
    """A conversation that was written as JSON inside a string, as its messages; any other value as it is."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        value, given = value[0], value
    else:
        given = value
    if not isinstance(value, str) or value[:1] != "[" or '"role"' not in value:
        return given
    opened = from_text(value)
    return opened if opened and all(isinstance(m, dict) and "role" in m for m in opened) else given


SPAN: ContextVar[tuple[int, int, int] | None] = ContextVar("SPAN", default=None)
"""(first byte, byte after the last, lines before): while set, `lines` reads this stretch of a file only."""


def lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """(number from 1, bytes) of each non-empty line; None instead of bytes longer than MAX_LINE.

    ValueError where a compressed file is torn, StoreError where a file cannot be opened.
    """
    at, end, n = SPAN.get() or (0, sys.maxsize, 0)
    try:
        with opened(path) as f:
            if at:
                f.seek(at)
            while at < end and (raw := f.readline(MAX_LINE + 1)):
                n += 1
                at += len(raw)
                if len(raw) > MAX_LINE and not raw.endswith(b"\n"):
                    # the rest of it is read and thrown away, so that the lines after it keep their numbers
                    while (rest := f.readline(1 << 20)) and not rest.endswith(b"\n"):
                        at += len(rest)
                    at += len(rest)
                    yield n, None
                elif raw.strip():
                    yield n, raw
    except TORN as e:
        raise ValueError(f"the gzip file is damaged after line {n} ({e}); the rest is unread") from None
    except OSError as e:
        raise StoreError(f"cannot read {path}: {e.strerror}; check the path and its permissions") from e


def read_json(path: Path) -> Any:
    """The file as one JSON value; ValueError with a short cause, StoreError where it cannot be opened."""
    try:
        return parse(content(path, MAX_FILE, "split it into JSON lines"))
    except OSError as e:
        raise StoreError(f"cannot read {path}: {e.strerror}; check the path and its permissions") from e


def read_json_or_none(path: Path) -> Any:
    """The JSON value of a file that may lie beside another one; None where it cannot be had."""
    try:
        return read_json(path) if path.is_file() else None
    except (ValueError, StoreError, OSError):
        return None


def first_value(path: Path, head: bytes) -> Any:
    """See `Source.first`."""
    first, found = None, None
    unread = True  # of the first line
    for n, line in enumerate(_first_lines(path, head)):
        try:
            value = parse(line)
        except ValueError:
            continue
        if not n:
            first, unread = value, False
        # after the first line only lines that begin with a brace: an indented file's inner lines are no records
        if isinstance(value, dict) and (not n or line.startswith(b"{")):
            found = value
            break
    # an indented JSON file has no whole value on its first line: it is parsed as one, if that can be afforded
    if unread and head.lstrip(BLANK)[:1] in (b"{", b"[") and (found is None or path.stat().st_size <= MAX_LINE):
        try:
            return read_json(path)
        except (ValueError, StoreError):
            pass
    return first if found is None else found


def _first_lines(path: Path, head: bytes) -> Iterator[bytes]:
    """The first non-empty lines; the last one of the head, which may be longer than it, only where it may be JSON."""
    rows = [x for x in head.split(b"\n") if x.strip()]
    torn = bool(rows) and not head.endswith(b"\n")
    yield from rows[: min(FIRST_LINES, len(rows) - torn)]
    if torn and len(rows) <= FIRST_LINES and rows[-1].lstrip(BLANK)[:1] in (b"{", b"["):
        try:
            # the head ends inside this line: it is read again, whole, from the file; one that is too long hides none
            yield from (line or b"" for _, line in islice(lines(path), len(rows) - 1, FIRST_LINES))
        except (ValueError, StoreError):
            return


def number(value: Any) -> float | None:
    """A finite number, also from a bool or a numeric string; None otherwise."""
    try:
        x = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return x if math.isfinite(x) else None


def text(value: Any) -> str:
    """Text of a message's content in any of the usual shapes: string, list of parts, None, anything JSON-able."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [_part(p) for p in value]
        return "\n".join(x for x in parts if x)
    return _part(value)


def _part(p: Any) -> str:
    if isinstance(p, dict):
        for key in ("text", "thinking", "reasoning", "content", "refusal", "output"):
            if isinstance(p.get(key), str):
                return str(p[key])
        if p.get("type") == "redacted_thinking":
            return ""
        return f"[{p['type']}]" if isinstance(p.get("type"), str) else json.dumps(p, ensure_ascii=False)
    return p if isinstance(p, str) else json.dumps(p, ensure_ascii=False, default=str)

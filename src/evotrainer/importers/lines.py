"""JSON lines, and JSON arrays of records, turned into rollouts one at a time; nothing a file holds raises."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from evotrainer.importers.base import Skipped
from evotrainer.importers.common import plain
from evotrainer.importers.lenient_json import BLANK, MAX_LINE, SPAN, content, lines, parse
from evotrainer.records import caps
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import cause, counted

MAX_ARRAY = 256 * 2**20
"""Bytes above which a JSON array is not read: it has to be in memory as a whole."""
MAX_SKIPPED = 100_000
"""Records of one file that cannot be read, after which its rest is not tried: each is remembered with its reason."""

Convert = Callable[[dict[str, Any], Any], Rollout | Skipped | str]
"""Record and its place (line, or index in the array, from 1; `line.row` of several rows in a line) to a rollout, or to
the reason why it is none."""
Split = Callable[[dict[str, Any]], list[dict[str, Any]] | str | None]
"""A line's rows, the reason why it has none, or None where it is one record."""


class Counters:
    """Index of each rollout within its group, in order of appearance."""

    def __init__(self) -> None:
        self._next: Counter[str] = Counter()

    def next(self, group: str) -> int:
        k = self._next[group]
        self._next[group] = k + 1
        return k


def values(path: Path, constants: bool = False) -> Iterator[tuple[int, Any]]:
    """(place, value) of each record: JSON lines, or the items of one JSON array. A value may be a `Skipped`.

    With `constants`, NaN and infinities come as words, see `lenient_json.parse`. Raises StoreError where the file
    cannot be opened.
    """
    try:
        stream = lines(path)
        # two lines tell an array from lines whose first is an array by mistake
        held = list(islice(stream, 2))
        if not held:
            yield 0, Skipped(str(path), "the file is empty")
        # a stretch of a file begins in its middle: whatever it begins with is a line, not an array
        elif SPAN.get() is None and _is_array(held):
            yield from _items(path, constants)
        else:
            for n, raw in chain(held, stream):
                yield _line(path, n, raw, constants)
    except ValueError as e:
        yield 0, Skipped(str(path), str(e))


def objects(path: Path) -> tuple[list[dict[str, Any]], list[Skipped]]:
    """The lines of an agent's session, and what of its file is none."""
    found, why = list(values(path)), "no line of a session: a JSON object was expected"
    unread = [
        x if isinstance(x, Skipped) else Skipped(f"{path.name}:{n}", why) for n, x in found if type(x) is not dict
    ]
    return [x for _, x in found if type(x) is dict], unread


def _is_array(held: list[tuple[int, bytes | None]]) -> bool:
    """Whether a file begins a JSON array, and not JSON lines whose first is an array by mistake."""
    first = held[0][1] or b""
    if first.lstrip(BLANK)[:1] != b"[":
        return False
    if len(held) < 2 or (held[1][1] or b"").lstrip()[:1] != b"{":
        return True
    try:
        parse(first)
    except ValueError:
        # a first line that does not parse: an array whose items follow on lines of their own begins like this
        return first.strip(BLANK) == b"[" or first.rstrip().endswith((b",", b"{", b"["))
    return False


def _line(path: Path, n: int, raw: bytes | None, constants: bool) -> tuple[int, Any]:
    if raw is None:
        return n, Skipped(f"{path} line {n}", f"longer than {MAX_LINE >> 20} MiB")
    try:
        return n, parse(raw, constants)
    except ValueError as e:
        return n, Skipped(f"{path} line {n}", f"no JSON: {e}")


def _items(path: Path, constants: bool) -> Iterator[tuple[int, Any]]:
    """Items of a JSON array, decoded one by one, so that a torn file gives all before the tear."""
    try:
        text = content(path, MAX_ARRAY, "write one object a line").decode("utf-8", errors="replace")
        caps.check_json(text)
    except ValueError as e:
        yield 0, Skipped(str(path), str(e))
        return
    # one by one and not `json.loads`: a file that a killed run left has no end
    decoder = json.JSONDecoder(parse_constant=lambda word: word if constants else None)
    at, n = text.index("[") + 1, 0
    while True:
        at = _skip(text, at, " \t\r\n,")
        if at >= len(text):
            yield n + 1, Skipped(f"{path} item {n + 1}", "the JSON array is torn here")
            return
        if text[at] == "]":
            break
        n += 1
        try:
            value, at = decoder.raw_decode(text, at)
        # `raw_decode` cannot tell where the deep value ends, so nothing after it can be found
        except RecursionError:
            yield n, Skipped(f"{path} item {n}", "nested too deeply; the rest of the array is unread")
            return
        except ValueError as e:
            reason = f"no JSON: {getattr(e, 'msg', e)} at character {getattr(e, 'pos', at)}; the rest is unread"
            yield n, Skipped(f"{path} item {n}", reason)
            return
        yield n, value
    rest = text[_skip(text, at + 1, " \t\r\n") :]
    if rest:
        yield n + 1, Skipped(f"{path} after item {n}", f"{counted(len(rest), 'character')} after the JSON array")
    elif not n:
        yield 0, Skipped(str(path), "the JSON array is empty")


def _skip(text: str, at: int, chars: str) -> int:
    while at < len(text) and text[at] in chars:
        at += 1
    return at


def _bounded(out: Rollout | Skipped | str) -> Rollout | Skipped | str:
    """The same, its free-form values no deeper than what every later step can write again."""
    if isinstance(out, Rollout):
        for values in (out.detail, out.knobs):
            for key, value in values.items():
                if type(value) in (dict, list):
                    values[key] = plain(value)  # type: ignore[index]  # made by `convert`, a dict
    return out


def records(
    path: Path, convert: Convert, constants: bool = False, rows: Split | None = None
) -> Iterator[Rollout | Skipped]:
    """Rollouts of a file through `convert`, which may raise: what it raises is the reason of that record's `Skipped`.
    `constants`: see `values`; `rows`: see `convert_all`."""
    return convert_all(path, values(path, constants), convert, rows)


def convert_all(
    path: Path, found: Iterable[tuple[int, Any]], convert: Convert, rows: Split | None = None
) -> Iterator[Rollout | Skipped]:
    """The same of records that were found already; `rows` says of a record which rows it holds."""
    unread = 0
    for n, value in found if rows is None else _split(path, found, rows):
        if unread == MAX_SKIPPED:
            yield Skipped(f"{path} record {n}", f"{counted(unread, 'record')} could not be read; the rest is unread")
            return
        out = _converted(value, n, convert)
        if isinstance(out, str):
            out = Skipped(f"{path} record {n}", out)
        unread += isinstance(out, Skipped)
        yield out


def _split(path: Path, found: Iterable[tuple[int, Any]], rows: Split) -> Iterator[tuple[int | str, Any]]:
    for n, value in found:
        parts = rows(value) if type(value) is dict else None
        if parts is None:
            yield n, value
        elif isinstance(parts, str):
            yield n, Skipped(f"{path} record {n}", parts)
        elif not parts:
            yield n, Skipped(f"{path} record {n}", "it holds no rows")
        elif len(parts) == 1:
            yield n, parts[0]
        else:
            yield from ((f"{n}.{i}", part) for i, part in enumerate(parts, 1))


def split_columns(r: dict[str, Any], texts: Iterable[str], others: Iterable[str]) -> list[dict[str, Any]] | str | None:
    """The rows of a line whose columns are lists of one length, where a text and one of the `others`, which are no
    lists by themselves, are such; what is none, as a conversation, is every row's. None where the record is one row."""
    for key in others:
        if type(r.get(key)) is list:
            break
    else:
        return None
    text = next((k for k in texts if type(r.get(k)) is list and not _is_talk(r[k])), None)
    if text is None:
        return None
    n = len(r[text])
    if wrong := [f"{k} {len(r[k])}" for k in others if type(r.get(k)) is list and len(r[k]) != n]:
        return f"a line of columns of different lengths: {text} {n}, {', '.join(wrong)}"
    shared = {k for k, v in r.items() if type(v) is not list or len(v) != n or _is_talk(v)}
    return [{k: v if k in shared else v[i] for k, v in r.items()} for i in range(n)]


def _is_talk(value: list[Any]) -> bool:
    """Is it one conversation, however many messages it has, and no column of texts?"""
    return bool(value) and all(isinstance(m, dict) and ("role" in m or "from" in m or "type" in m) for m in value)


def _converted(value: Any, n: int | str, convert: Convert) -> Rollout | Skipped | str:
    """A record as a rollout, or why it is none."""
    if isinstance(value, Skipped):
        return value
    if not isinstance(value, dict):
        return f"not a JSON object but {type(value).__name__}"
    try:
        return _bounded(convert(value, n))
    except (Exception, RecursionError) as e:
        return f"cannot be read: {type(e).__name__}: {cause(e)}"


def columns(path: Path, why_not: Callable[[set[str]], str | None] = lambda names: None) -> Iterator[tuple[int, Any]]:
    """(place, row) of a Parquet file, or a `Skipped` in its place; `why_not` tells from the column names why it is not
    of the format."""
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except Exception as e:
        yield 0, Skipped(str(path), f"no intact Parquet file: {cause(e)}")
        return
    with file:
        reason = why_not(set(file.schema_arrow.names))
        try:
            caps.check_parquet(path)
        except ValueError as e:
            reason = reason or str(e)
        if reason:
            yield 0, Skipped(str(path), reason)
            return
        n = 0
        # group by group: one that is damaged costs its own rows only
        for g in range(file.num_row_groups):
            done, end = n, n + file.metadata.row_group(g).num_rows
            try:
                for batch in caps.batches(file, path, [g]):
                    yield from enumerate(batch.to_pylist(), done + 1)
                    done += batch.num_rows
            except Exception as e:
                yield done, Skipped(f"{path} rows {done + 1} to {end}", f"damaged: {cause(e)}")
            n = end

"""Rollouts as columns, before anything is read from their text: the one form in which traits are extracted.

A chunk comes from an Arrow table of stored rollouts; no Python object is made of a rollout unless something about it
asks for one. What is no table yet (an import in memory, a test) becomes one first, as it would be stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evotrainer.harness.code_reading.recorded import READ_KEYS, worth_keeping
from evotrainer.harness.columns.numerics import Floats, Ints
from evotrainer.records.rollout import GROUPED_BY, Role, Rollout

if TYPE_CHECKING:
    import pyarrow as pa

TRUTH = {"correct": 1.0, "incorrect": 0.0}
FINISH = {"stop": 0.0, "length": 1.0, "turn_limit": 2.0, "error": 3.0}
SCALARS = ("reward", "advantage", "mean_logprob", "entropy", "step")


@dataclass(frozen=True, slots=True)
class CodedColumn:
    """A text column of few distinct values: `code` [N] is the place in `names`, -1 for none."""

    code: Ints
    names: tuple[str, ...]


@dataclass(slots=True)
class RolloutColumns:
    """N rollouts. Float columns hold NaN for missing values."""

    n: int
    id: Ints
    """64-bit hashes, equal for equal ids; likewise `task` and `group`."""
    task: Ints
    group: Ints
    scalars: dict[str, Floats]
    """SCALARS, and truth (1 correct, 0 incorrect), finish (codes of FINISH), tokens, turns (of the assistant), prompt
    (1 where the first turn is not the assistant's and holds text)."""
    components: dict[str, Floats]
    fault: CodedColumn
    """`error_kind`"""
    subject: CodedColumn
    """Whose rollouts they are: run, branch and split, as far as they are said."""
    text: bytes
    """All completions (assistant turns joined by newlines), UTF-8, one after the other."""
    starts: Ints
    ends: Ints
    acting: np.ndarray
    """Rollouts with tool calls or several assistant turns, bool."""
    calling: np.ndarray
    """Rollouts with tool calls, bool."""
    details: dict[int, Mapping[str, Any]]
    """`detail` of the rollouts that have tests, a patch, protected files or facts of probes in it."""
    turns: Callable[[Sequence[int]], list[tuple[Any, ...]]]
    """Turns (or what reads like them) of the given rows."""
    prompts: Callable[[Ints, str], tuple[Ints, list[str]]]
    """Of the given rows, and a pattern (RE2): (place of each row's prompt in the list, -1 where it does not match; the
    distinct prompts that match). A prompt is the text before the first answer."""

    def completion(self, i: int) -> str:
        return self.text[self.starts[i] : self.ends[i]].decode("utf-8", "replace")


def from_rollouts(rollouts: Sequence[Rollout], first: int = 0) -> RolloutColumns:
    """A chunk of Python objects, read as they would be stored."""
    import pyarrow as pa

    from evotrainer.records.arrow_schema import encode, scrub

    try:
        batch = encode(rollouts)
    except UnicodeEncodeError:
        batch = encode([scrub(r) for r in rollouts])
    return from_table(pa.Table.from_batches([batch]), first)


def _codes(keys: pa.Array) -> Ints:
    """64-bit hashes of the keys."""
    # each distinct key is hashed once: groups and tasks repeat thousands of times
    encoded = keys.dictionary_encode()
    digests = b"".join(blake2b(k.encode(), digest_size=8).digest() for k in encoded.dictionary.to_pylist())
    return np.frombuffer(digests, dtype=np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]


def hash64(text: str) -> int:
    """63-bit hash of a text, the same everywhere."""
    # not hash(): Python salts it, and readings would differ from process to process
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") >> 1


def from_table(table: pa.Table, first: int = 0) -> RolloutColumns:
    """A chunk of stored rollouts (`records.arrow_schema`), without making objects of them; at most 2 GB of text.

    `first`: place of the first row in its source, which tells rollouts without id apart. `id`, `task` and `group` are
    64-bit hashes: equal keys of different chunks agree.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    n = table.num_rows
    turns = _one(table["turns"])
    counts = turns.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    role, text, calls, turn_tokens = turns.flatten().flatten()
    row = np.repeat(np.arange(n), counts)
    by_policy = pc.equal(role, "assistant").fill_null(False).to_numpy(zero_copy_only=False)
    answers = np.bincount(row[by_policy], minlength=n)
    lists = pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(answers)]), pa.int32()), text.filter(pa.array(by_policy)).fill_null("")
    )
    joined = pc.binary_join(lists, "\n").fill_null("")
    buffer, starts, ends = _spans(joined)
    n_calls = np.bincount(
        row, weights=pc.list_value_length(calls).fill_null(0).to_numpy(zero_copy_only=False), minlength=n
    )

    scalars = {name: _floats(table[name]) for name in SCALARS}
    scalars["truth"] = _coded(table["outcome"], TRUTH)
    scalars["finish"] = _coded(table["finish"], FINISH)
    scalars["tokens"] = _floats(table["tokens"])
    counted = _floats(turn_tokens)
    known = by_policy & ~np.isnan(counted)
    summed = np.bincount(row[known], weights=counted[known], minlength=n)
    some = np.bincount(row[known], minlength=n) > 0
    # imported rollouts often count their turns only
    scalars["tokens"] = np.where(np.isnan(scalars["tokens"]) & some, summed, scalars["tokens"])
    scalars["turns"] = answers.astype(float)
    # answers counted over all turns, less those of earlier rollouts: 0 until the rollout's own first answer
    asked = np.cumsum(by_policy) - np.repeat((np.cumsum(answers) - answers), counts) == 0  # before the first answer
    length = pc.binary_length(text).fill_null(0).to_numpy(zero_copy_only=False)
    scalars["prompt"] = (np.bincount(row[asked], weights=length[asked], minlength=n) > 0).astype(float)
    return RolloutColumns(
        n=n,
        **_keys(table, first),
        scalars=scalars,
        components=_components(_one(table["components"]), n),
        fault=_coded_text(table["error_kind"]),
        subject=_subjects(table),
        text=buffer,
        starts=starts,
        ends=ends,
        acting=(n_calls > 0) | (answers > 1),
        calling=n_calls > 0,
        details=_details(table["detail"]),
        turns=lambda rows: turns_at(table["turns"], rows),
        prompts=lambda rows, pattern: _prompts(turns, rows, pattern),
    )


def _one(column: pa.ChunkedArray) -> Any:
    """The column as one array without an offset."""
    import pyarrow as pa

    # a single chunk may be a slice with an offset; concat_arrays makes a copy without one
    return column.combine_chunks() if column.num_chunks != 1 else pa.concat_arrays([column.chunk(0)])


def _floats(column: Any) -> Floats:
    import pyarrow as pa

    x = np.asarray(column.cast(pa.float64()))
    # infinities count as missing: one of them would make every mean of the batch useless
    return np.where(np.isfinite(x), x, np.nan)


def _coded(column: pa.ChunkedArray, codes: Mapping[str, float]) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

    # null and unknown words have no index: they stay NaN
    at = pc.index_in(column, pa.array(list(codes))).cast(pa.float64()).to_numpy()
    values = np.array(list(codes.values()))
    out = np.full(len(at), np.nan)
    ok = ~np.isnan(at)
    out[ok] = values[at[ok].astype(int)]
    return out


def _spans(strings: pa.StringArray) -> tuple[bytes, Ints, Ints]:
    """(bytes, starts, ends) of a string array."""
    offsets = np.frombuffer(strings.buffers()[1], dtype=np.int32)[strings.offset : strings.offset + len(strings) + 1]
    data = strings.buffers()[2]
    o = offsets.astype(np.int64)
    return (data.to_pybytes() if data is not None else b""), o[:-1], o[1:]


def _text(column: pa.ChunkedArray) -> Any:
    """The column as one array of strings without nulls."""
    import pyarrow as pa

    return _one(column).cast(pa.string()).fill_null("")


def _keys(table: pa.Table, first: int) -> dict[str, Ints]:
    """Hashes of ids, tasks and groups; rollouts without id are told apart by their place in the source."""
    import pyarrow as pa
    import pyarrow.compute as pc

    id, task, group = (_text(table[c]) for c in ("id", "task", "group"))
    if (nameless := pc.equal(id, "")).true_count:
        # the \x00 marks them: rollouts without an id never equal each other, nor one that has an id
        id = pc.if_else(nameless, pa.array([f"\x00{first + i}" for i in range(len(id))]), id)
    if (nameless := pc.equal(group, "")).true_count:
        own = pc.binary_join_element_wise(*(_text(table[c]) for c in GROUPED_BY), "\x1f")
        group = pc.if_else(nameless, own, group)
    return {"id": _codes(id), "task": _codes(task), "group": _codes(group)}


def _coded_text(column: Any) -> CodedColumn:
    import pyarrow.compute as pc

    encoded = pc.dictionary_encode(_one(column) if hasattr(column, "chunks") else column)
    return CodedColumn(
        encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64),
        tuple(encoded.dictionary.to_pylist()),
    )


def _subjects(table: pa.Table) -> CodedColumn:
    import pyarrow.compute as pc

    # Arrow's own way to join and skip nulls loses the rows that hold nothing else
    whole = _coded_text(pc.binary_join_element_wise(*(_text(table[c]) for c in ("run", "branch", "split")), "\x1f"))
    places: dict[str, int] = {}
    names = (" ".join(filter(None, name.split("\x1f"))) for name in whole.names)
    code = np.array([places.setdefault(name, len(places)) for name in names], dtype=np.int64)
    return CodedColumn(code[whole.code], tuple(places))


def _components(column: Any, n: int) -> dict[str, Floats]:
    import pyarrow.compute as pc

    row = np.repeat(np.arange(n), column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
    names, values = column.flatten().flatten()
    if not len(names):
        return {}
    encoded = pc.dictionary_encode(names)
    code = encoded.indices.to_numpy(zero_copy_only=False)
    value = _floats(values)
    out: dict[str, Floats] = {}
    for i, name in enumerate(encoded.dictionary.to_pylist()):
        x = np.full(n, np.nan)
        x[row[code == i]] = value[code == i]
        out[str(name)] = x
    return out


def _json(text: str) -> Any:
    """The value of a JSON text, also with NaN and infinity; None where it is none."""
    import orjson

    # orjson is faster, but refuses NaN and infinity
    for read in (orjson.loads, json.loads):
        try:
            return read(text)
        except ValueError:
            continue
    return None


def _details(column: pa.ChunkedArray) -> dict[int, Mapping[str, Any]]:
    import pyarrow.compute as pc

    # parsing JSON is slow: only details that may hold a wanted key are parsed
    keyed = pc.match_substring_regex(column, f'(?:{"|".join(READ_KEYS)})"').fill_null(False)
    rows = np.flatnonzero(keyed.to_numpy())
    out: dict[int, Mapping[str, Any]] = {}
    # attempts that fail alike have one detail: it is parsed once, and is one object
    each = _one(column.take(rows)).dictionary_encode()
    parsed = [_json(text) for text in each.dictionary.to_pylist()]
    kept = [v if isinstance(v, dict) and worth_keeping(v) else None for v in parsed]
    for i, at in zip(rows.tolist(), each.indices.to_pylist(), strict=True):
        if (value := kept[at]) is not None:
            out[i] = value
    return out


class _Call(NamedTuple):
    """A `ToolCall` that is quick to make."""

    name: str
    arguments: str
    ok: bool | None


class _Turn(NamedTuple):
    """A `Turn` that is quick to make."""

    role: Role
    text: str
    tool_calls: tuple[_Call, ...]
    tokens: int | None


def turns_at(column: pa.ChunkedArray, rows: Sequence[int]) -> list[tuple[Any, ...]]:
    """Turns of the given rows, as `_Turn`s."""
    if not len(rows):
        return []
    lists = _one(column.take(list(rows)))
    role, text, calls, tokens = lists.flatten().flatten()
    # column by column: to_pylist of the nested lists would make a dict of every turn and every call first
    made = list(map(_Call._make, zip(*(c.to_pylist() for c in calls.flatten().flatten()), strict=True)))
    called = [tuple(made[a:b]) for a, b in _bounds(calls)]
    turns = list(map(_Turn._make, zip(role.to_pylist(), text.to_pylist(), called, tokens.to_pylist(), strict=True)))
    return [tuple(turns[a:b]) for a, b in _bounds(lists)]


def _prompts(turns: Any, rows: Ints, pattern: str) -> tuple[Ints, list[str]]:
    """See `RolloutColumns.prompts`. Prompts repeat within a group: each distinct one is looked at once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = turns.take(pa.array(rows))
    counts = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    role, text, _, _ = lists.flatten().flatten()
    by_policy = pc.equal(role, "assistant").fill_null(False).to_numpy(zero_copy_only=False)
    row = np.repeat(np.arange(len(rows)), counts)
    answers = np.bincount(row[by_policy], minlength=len(rows))
    before = np.cumsum(by_policy) - np.repeat(np.cumsum(answers) - answers, counts) == 0
    asked = np.bincount(row[before], minlength=len(rows))
    each = pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(asked)]), pa.int32()), text.filter(pa.array(before)).fill_null("")
    )
    encoded = pc.binary_join(each, "\n").fill_null("").dictionary_encode()
    matches = pc.match_substring_regex(encoded.dictionary, pattern).to_numpy(zero_copy_only=False)
    place = np.where(matches, np.cumsum(matches) - 1, -1)
    found = encoded.dictionary.filter(pa.array(matches)).to_pylist()
    return place[encoded.indices.to_numpy(zero_copy_only=False)], found


def _bounds(lists: Any) -> list[tuple[int, int]]:
    """Where each row's items lie in the flattened list."""
    ends = np.cumsum(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)).tolist()
    return list(pairwise([0, *ends]))

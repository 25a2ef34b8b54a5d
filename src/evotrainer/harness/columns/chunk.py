"""Rollouts as columns, before anything is read from their text: the one form in which traits are extracted.

A chunk comes from `Rollout` objects (a trial, a test) or from an Arrow table of stored ones (an audit), where no Python
object is made of a rollout unless something about it asks for one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evotrainer.harness.code_reading.patches_and_hashes import GATES, worth_keeping
from evotrainer.harness.columns.numerics import Floats, Ints, nan_or
from evotrainer.harness.text import turn_text
from evotrainer.records.rollout import Role, Rollout, Turn

if TYPE_CHECKING:
    import pyarrow as pa

TRUTH = {"correct": 1.0, "incorrect": 0.0}
FINISH = {"stop": 0.0, "length": 1.0, "turn_limit": 2.0, "error": 3.0}
SCALARS = ("reward", "advantage", "mean_logprob", "entropy", "step")


@dataclass(frozen=True, slots=True)
class Coded:
    """A text column of few distinct values: `code` [N] is the place in `names`, -1 for none."""

    code: Ints
    names: tuple[str, ...]

    @classmethod
    def of(cls, values: Sequence[str | None]) -> Coded:
        places: dict[str, int] = {}
        code = [-1 if v is None else places.setdefault(str(v), len(places)) for v in values]
        return cls(np.array(code, dtype=np.int64), tuple(places))


@dataclass(slots=True)
class Chunk:
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
    fault: Coded
    """`error_kind`"""
    subject: Coded
    """Whose rollouts they are: run, branch and split, as far as they are said."""
    text: bytes
    """All completions (assistant turns joined by newlines), UTF-8, one after the other."""
    starts: Ints
    ends: Ints
    acting: np.ndarray
    """Rollouts with tool calls or several assistant turns, bool."""
    details: dict[int, Mapping[str, Any]]
    """`detail` of the rollouts that have tests, a patch or protected files beside them."""
    turns: Callable[[Sequence[int]], list[tuple[Any, ...]]]
    """Turns (or what reads like them) of the given rows."""

    def completion(self, i: int) -> str:
        return self.text[self.starts[i] : self.ends[i]].decode("utf-8", "replace")


def group_key(r: Rollout) -> str:
    """The rollout's group; where the trainer named none, rollouts of one task by one policy version share one."""
    return r.group or "\x1f".join((r.branch, str(r.seed), r.policy, str(r.step), str(r.task)))


def completion(r: Rollout) -> str:
    """Text of the assistant turns, joined by newlines."""
    return "\n".join(turn_text(t) for t in r.turns if t.role == "assistant")


def prompt(r: Rollout) -> str:
    """Text before the first assistant turn."""
    return prompt_of(r.turns)


def prompt_of(turns: Sequence[Turn]) -> str:
    """The same of its turns."""
    out: list[str] = []
    for t in turns:
        if t.role == "assistant":
            break
        out.append(turn_text(t))
    return "\n".join(out)


def from_rollouts(rollouts: Sequence[Rollout], first: int = 0) -> Chunk:
    """A chunk of Python objects; `first`: place of the first one in its source, which tells rollouts without id
    apart."""
    texts = [completion(r).encode("utf-8", "replace") for r in rollouts]
    ends = np.cumsum([len(t) for t in texts], dtype=np.int64) if texts else np.zeros(0, np.int64)

    def column(get: Callable[[Rollout], object]) -> Floats:
        return np.array([nan_or(get(r)) for r in rollouts], dtype=float)

    scalars = {name: column(lambda r, name=name: getattr(r, name)) for name in SCALARS}  # type: ignore[misc]
    scalars["truth"] = np.array([TRUTH.get(r.outcome, math.nan) for r in rollouts], dtype=float)
    scalars["finish"] = np.array([FINISH.get(r.finish or "", math.nan) for r in rollouts], dtype=float)
    scalars["tokens"] = column(_tokens)
    scalars["turns"] = column(lambda r: sum(t.role == "assistant" for t in r.turns))
    scalars["prompt"] = column(lambda r: float(bool(prompt(r))))
    names = sorted({str(k) for r in rollouts for k in r.components})
    acts = [any(t.tool_calls for t in r.turns) or x > 1 for r, x in zip(rollouts, scalars["turns"], strict=True)]
    return Chunk(
        n=len(rollouts),
        id=_codes([r.id or f"\x00{first + i}" for i, r in enumerate(rollouts)]),
        task=_codes([str(r.task) for r in rollouts]),
        group=_codes([group_key(r) for r in rollouts]),
        scalars=scalars,
        components={c: column(lambda r, c=c: r.components.get(c)) for c in names},  # type: ignore[misc]
        fault=Coded.of([r.error_kind for r in rollouts]),
        subject=Coded.of([" ".join(str(x) for x in (r.run, r.branch, r.split) if x) for r in rollouts]),
        text=b"".join(texts),
        starts=np.concatenate([np.zeros(min(1, len(texts)), np.int64), ends[:-1]]),
        ends=ends,
        acting=np.array(acts, dtype=bool),
        details={
            i: r.detail for i, r in enumerate(rollouts) if isinstance(r.detail, Mapping) and worth_keeping(r.detail)
        },
        turns=lambda rows: [tuple(rollouts[i].turns) for i in rows],
    )


def _tokens(r: Rollout) -> float | None:
    """Completion tokens: recorded, else summed over assistant turns, else None."""
    if r.tokens is not None:
        return r.tokens
    counts = [t.tokens for t in r.turns if t.role == "assistant" and t.tokens is not None]
    return float(sum(counts)) if counts else None


def _codes(keys: Sequence[str]) -> Ints:
    """64-bit hashes of the keys."""
    digests = b"".join(blake2b(k.encode("utf-8", "surrogatepass"), digest_size=8).digest() for k in keys)
    return np.frombuffer(digests, dtype=np.int64)


def hash64(text: str) -> int:
    """63-bit hash of a text, the same everywhere."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") >> 1


def from_table(table: pa.Table) -> Chunk:
    """A chunk of stored rollouts (`records.arrow_schema`), without making objects of them; at most 2 GB of text.

    `id`, `task` and `group` are 64-bit hashes: equal keys of different chunks agree.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    n = table.num_rows
    turns = _one(table["turns"])
    counts = turns.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    role, text, calls, turn_tokens = turns.flatten().flatten()
    row = np.repeat(np.arange(n), counts)
    said = pc.equal(role, "assistant").fill_null(False).to_numpy(zero_copy_only=False)
    answers = np.bincount(row[said], minlength=n)
    lists = pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(answers)]), pa.int32()), text.filter(pa.array(said)).fill_null("")
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
    known = said & ~np.isnan(counted)
    summed = np.bincount(row[known], weights=counted[known], minlength=n)
    some = np.bincount(row[known], minlength=n) > 0
    scalars["tokens"] = np.where(np.isnan(scalars["tokens"]) & some, summed, scalars["tokens"])
    scalars["turns"] = answers.astype(float)
    first = np.cumsum(counts) - counts
    opens = np.zeros(n, dtype=bool)
    opens[counts > 0] = ~said[first[counts > 0]]
    length = pc.binary_length(text).fill_null(0).to_numpy(zero_copy_only=False)
    opens[counts > 0] &= length[first[counts > 0]] > 0
    scalars["prompt"] = opens.astype(float)
    return Chunk(
        n=n,
        **_keys(table),
        scalars=scalars,
        components=_components(_one(table["components"]), n),
        fault=_coded_text(table["error_kind"]),
        subject=_subjects(table),
        text=buffer,
        starts=starts,
        ends=ends,
        acting=(n_calls > 0) | (answers > 1),
        details=_details(table["detail"]),
        turns=lambda rows: _turns(table["turns"], rows),
    )


def _one(column: pa.ChunkedArray) -> Any:
    """The column as one array without an offset."""
    import pyarrow as pa

    return column.combine_chunks() if column.num_chunks != 1 else pa.concat_arrays([column.chunk(0)])


def _floats(column: Any) -> Floats:
    import pyarrow as pa

    x = (
        column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        if not isinstance(column, pa.ChunkedArray)
        else (column.cast(pa.float64()).to_numpy())
    )
    return np.where(np.isfinite(x), x, np.nan)


def _coded(column: pa.ChunkedArray, codes: Mapping[str, float]) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

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


def _keys(table: pa.Table) -> dict[str, Ints]:
    import polars as pl

    names = ["id", "task", "group", "branch", "seed", "policy", "step"]
    frame = pl.from_arrow(table.select(names))
    assert isinstance(frame, pl.DataFrame)
    own = pl.concat_str([pl.col(c).cast(pl.String).fill_null("") for c in (*names[3:], "task")], separator="\x1f")
    group = pl.when(pl.col("group").fill_null("") == "").then(own).otherwise(pl.col("group"))
    hashed = frame.select(
        pl.col("id").hash(1).alias("id"), pl.col("task").hash(2).alias("task"), group.hash(3).alias("group")
    )
    return {c: hashed[c].to_numpy().astype(np.int64) for c in ("id", "task", "group")}


def _coded_text(column: Any) -> Coded:
    import pyarrow.compute as pc

    encoded = pc.dictionary_encode(_one(column) if hasattr(column, "chunks") else column)
    return Coded(
        encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64),
        tuple(encoded.dictionary.to_pylist()),
    )


def _subjects(table: pa.Table) -> Coded:
    import polars as pl

    frame = pl.from_arrow(table.select(["run", "branch", "split"]))
    assert isinstance(frame, pl.DataFrame)
    said = [pl.when(pl.col(c).fill_null("") == "").then(None).otherwise(pl.col(c)) for c in frame.columns]
    joined = frame.select(pl.concat_str(said, separator=" ", ignore_nulls=True).alias("subject"))["subject"]
    return _coded_text(joined.to_arrow())


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


def _details(column: pa.ChunkedArray) -> dict[int, Mapping[str, Any]]:
    import orjson
    import pyarrow.compute as pc

    keys = [pc.match_substring(column, f'{k}"').fill_null(False).to_numpy() for k in GATES]
    rows = np.flatnonzero(np.logical_or.reduce(keys))
    out: dict[int, Mapping[str, Any]] = {}
    for i, text in zip(rows.tolist(), column.take(rows).to_pylist(), strict=True):
        try:
            value = orjson.loads(text)
        except ValueError:
            continue
        if isinstance(value, dict) and worth_keeping(value):
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


def _turns(column: pa.ChunkedArray, rows: Sequence[int]) -> list[tuple[Any, ...]]:
    """Turns of the given rows, as `_Turn`s."""
    if not len(rows):
        return []
    lists = _one(column.take(list(rows)))
    role, text, calls, tokens = lists.flatten().flatten()
    made = list(map(_Call._make, zip(*(c.to_pylist() for c in calls.flatten().flatten()), strict=True)))
    called = [tuple(made[a:b]) for a, b in _bounds(calls)]
    turns = list(map(_Turn._make, zip(role.to_pylist(), text.to_pylist(), called, tokens.to_pylist(), strict=True)))
    return [tuple(turns[a:b]) for a, b in _bounds(lists)]


def _bounds(lists: Any) -> list[tuple[int, int]]:
    """Where each row's items lie in the flattened list."""
    ends = np.cumsum(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))

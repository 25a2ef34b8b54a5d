"""The published Arrow schema of rollouts, and the conversion of a `Rollout` into it and back.

Nested values that every reader wants are native: `turns` is a list of structs, `components` a list of
{name, value} (a Parquet map reads as this in Polars anyway, and a list of structs keeps the order). Free-form
values (`knobs`, `detail`) are JSON text. `logprobs` are float32, what samplers compute; all other numbers keep
64 bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any

from evotrainer.errors import StoreError
from evotrainer.records.rollout import SCHEMA_VERSION, Rollout, ToolCall, Turn
from evotrainer.records.text import clean_text

if TYPE_CHECKING:
    import pyarrow as pa

VERSION_KEY = b"evotrainer.rollout_schema"

_STRINGS = ("id", "task", "outcome", "finish", "run", "branch", "policy", "split", "group")
_STRINGS_2 = ("sandbox_tier", "env_hash", "error", "error_kind")
_INTS = ("step", "seed", "k", "attempt", "tokens")
_FLOATS = ("reward", "advantage", "mean_logprob", "entropy")
JSON_COLUMNS = ("knobs", "detail")
_PLAIN = _STRINGS + _STRINGS_2 + _INTS + _FLOATS


@cache
def arrow_schema() -> pa.Schema:
    """One row per rollout; column names are those of `Rollout`. The metadata holds the schema version."""
    import pyarrow as pa

    call = pa.struct([("name", pa.string()), ("arguments", pa.string()), ("ok", pa.bool_())])
    turn = pa.struct(
        [("role", pa.string()), ("text", pa.string()), ("tool_calls", pa.list_(call)), ("tokens", pa.int64())]
    )
    component = pa.struct([("name", pa.string()), ("value", pa.float64())])
    types = (
        {name: pa.string() for name in _STRINGS + _STRINGS_2 + JSON_COLUMNS}
        | {name: pa.int64() for name in _INTS}
        | {name: pa.float64() for name in _FLOATS}
        | {
            "turns": pa.list_(turn),
            "components": pa.list_(component),
            "token_ids": pa.list_(pa.int32()),
            "logprobs": pa.list_(pa.float32()),
        }
    )
    return pa.schema(
        [(f.name, types[f.name]) for f in fields(Rollout)],
        metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()},
    )


def check_version(schema: pa.Schema, where: str) -> None:
    """StoreError where a file's schema is not one this version reads."""
    found = (schema.metadata or {}).get(VERSION_KEY)
    if found is None or not found.isdigit():
        raise StoreError(
            f"{where} holds no EvoTrainer rollouts; give the folder of a trial's rollouts, e.g. RUN/rollouts/b0-s1"
        )
    if int(found) > SCHEMA_VERSION:
        raise StoreError(
            f"{where} has rollout schema {int(found)}, this evotrainer reads up to {SCHEMA_VERSION}; upgrade evotrainer"
        )


def encode(rollouts: Sequence[Rollout]) -> pa.RecordBatch:
    """Rollouts as one record batch of `arrow_schema()`.

    Raises UnicodeEncodeError for lone surrogates (see `scrub`), StoreError for a value that does not fit.
    """
    import pyarrow as pa

    schema = arrow_schema()
    try:
        columns: dict[str, pa.Array] = {
            name: pa.array([getattr(r, name) for r in rollouts], schema.field(name).type) for name in _PLAIN
        }
        for name in JSON_COLUMNS:
            columns[name] = pa.array([_json(getattr(r, name)) for r in rollouts], pa.string())
        columns["turns"] = _encode_turns([r.turns for r in rollouts])
        columns["components"] = _encode_components([r.components for r in rollouts])
        for name in ("token_ids", "logprobs"):
            columns[name] = pa.array([getattr(r, name) for r in rollouts], schema.field(name).type)
    except UnicodeEncodeError:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
        raise StoreError(f"rollout {_culprit(rollouts)} cannot be stored: {e}; correct the field's value") from e
    return pa.RecordBatch.from_arrays([columns[f.name] for f in schema], schema=schema)


def _culprit(rollouts: Sequence[Rollout]) -> str:
    """Id of the rollout that cannot be encoded on its own."""
    if len(rollouts) > 1:
        for r in rollouts:
            try:
                encode([r])
            except StoreError:
                return r.id
    return rollouts[0].id


def _json(value: Mapping[str, Any]) -> str | None:
    if not value:
        return None
    import orjson

    try:
        quick = orjson.dumps(value, default=_as_json, option=orjson.OPT_NON_STR_KEYS)
        if b"null" not in quick:  # it may stand for infinity or NaN
            return quick.decode()
    except TypeError:  # numbers beyond 64 bits, lone surrogates, what is not JSON-able: told apart below
        pass
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_json)


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays, tensors
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON-able")


def _offsets(lengths: Iterable[int]) -> pa.Array:
    import pyarrow as pa

    return pa.array(list(accumulate(lengths, initial=0)), pa.int32())


def _struct_list(lengths: Iterable[int], children: list[pa.Array], kind: pa.ListType) -> pa.ListArray:
    import pyarrow as pa

    items = pa.StructArray.from_arrays(children, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(_offsets(lengths), items, type=kind)


def _encode_turns(turns_R: list[tuple[Turn, ...]]) -> pa.ListArray:
    import pyarrow as pa

    kind = arrow_schema().field("turns").type
    turns = list(chain.from_iterable(turns_R))
    calls = list(chain.from_iterable(t.tool_calls for t in turns))
    calls_T = _struct_list(
        (len(t.tool_calls) for t in turns),
        [
            pa.array([c.name for c in calls], pa.string()),
            pa.array([c.arguments for c in calls], pa.string()),
            pa.array([c.ok for c in calls], pa.bool_()),
        ],
        kind.value_type.field("tool_calls").type,
    )
    return _struct_list(
        (len(t) for t in turns_R),
        [
            pa.array([t.role for t in turns], pa.string()),
            pa.array([t.text for t in turns], pa.string()),
            calls_T,
            pa.array([t.tokens for t in turns], pa.int64()),
        ],
        kind,
    )


def _encode_components(components_R: list[Mapping[str, float | None]]) -> pa.ListArray:
    import pyarrow as pa

    items = [item for c in components_R for item in c.items()]
    return _struct_list(
        (len(c) for c in components_R),
        [
            pa.array([name for name, _ in items], pa.string()),
            pa.array([None if v is None else float(v) for _, v in items], pa.float64()),
        ],
        arrow_schema().field("components").type,
    )


def decode(batch: pa.RecordBatch) -> list[Rollout]:
    """The rollouts of a record batch that holds every column of `arrow_schema()`."""
    columns = {name: batch.column(name).to_pylist() for name in (*_PLAIN, "token_ids", "logprobs")}
    for name in JSON_COLUMNS:
        columns[name] = [{} if text is None else json.loads(text) for text in batch.column(name).to_pylist()]
    for name in ("token_ids", "logprobs"):
        columns[name] = [None if v is None else tuple(v) for v in columns[name]]
    columns["turns"] = decode_turns(batch.column("turns"))
    columns["components"] = [dict(pairs) for pairs in _slices(batch.column("components"), _pairs)]
    rows = zip(*(columns[f.name] for f in fields(Rollout)), strict=True)
    return [Rollout(*row) for row in rows]


def _slices(lists: pa.ListArray, convert: Any) -> list[list[Any]]:
    """Convert all items of a list column at once, then cut them into the rows' lists."""
    items = convert(lists.flatten())
    ends = list(accumulate(lists.value_lengths().to_pylist(), initial=0))
    return [items[a:b] for a, b in pairwise(ends)]


def _pairs(structs: pa.StructArray) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in structs.flatten()), strict=True))


def decode_turns(turns: pa.ListArray) -> list[tuple[Turn, ...]]:
    """The turns of each row of a `turns` column."""

    def convert(structs: pa.StructArray) -> list[Turn]:
        role, text, calls, tokens = structs.flatten()
        calls_T = _slices(calls, lambda s: [ToolCall(*c) for c in _pairs(s)])
        values = zip(role.to_pylist(), text.to_pylist(), calls_T, tokens.to_pylist(), strict=True)
        return [Turn(r, t, tuple(c), n) for r, t, c, n in values]

    return [tuple(t) for t in _slices(turns, convert)]


def scrub(value: Any) -> Any:
    """A copy with lone surrogates, which UTF-8 cannot hold, replaced by U+FFFD; used where encoding failed."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Rollout | Turn | ToolCall):
        return replace(value, **{f.name: scrub(getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, Mapping):
        return {scrub(k): scrub(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(scrub(v) for v in value)
    return value

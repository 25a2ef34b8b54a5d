"""The chain of the ledger: an event, the row that holds it, and the hash that ties it to the one before."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from evotrainer.errors import StoreError
from evotrainer.records.events import BODIES
from evotrainer.records.events.run import FORMAT
from evotrainer.records.frozen import Frozen, explain
from evotrainer.records.text import clean_text

GENESIS = hashlib.sha256(f"evotrainer ledger {FORMAT}".encode()).hexdigest()
"""prev_hash of the first event: a ledger of one format cannot pass for one of another."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the ledger. `time` is UTC, ISO 8601; `hash` covers all other columns and the line before."""

    seq: int
    id: str
    kind: str
    time: str
    body: Any
    """The model of its kind in `events.BODIES`."""
    hash: str


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event as stored, unparsed."""

    seq: int
    id: str
    kind: str
    time: str
    body: str
    prev_hash: str
    hash: str


def canonical(body: Frozen) -> str:
    """Canonical JSON of a body: sorted keys, no blanks, lone surrogates as U+FFFD.

    StoreError for what JSON cannot hold (NaN, infinity, foreign objects, endless nesting).
    """
    try:
        values = _clean(body.model_dump(mode="python"))
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError) as e:
        raise StoreError(f"{type(body).__name__} cannot be recorded: {e}; record None instead") from None


def _clean(value: Any) -> Any:
    """JSON-able copy of a dumped body without lone surrogates."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {_clean(str(k)): _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(v) for v in value]
    return value


def chain_hash(prev_hash: str, seq: int, id: str, kind: str, time: str, body: str) -> str:
    """SHA-256 (64 hex) over the JSON array of its arguments; `body` is the canonical JSON text."""
    line = json.dumps([prev_hash, seq, id, kind, time, body], separators=(",", ":"))
    return hashlib.sha256(line.encode()).hexdigest()


def broken(row: EventRow, seq: int, prev_hash: str) -> str | None:
    """What is wrong with a row's place in the chain or its hash, None if nothing."""
    where = f"event {row.seq} ({row.id})"
    if row.seq != seq:
        return f"{where}: events {seq} to {row.seq - 1} are missing"
    if row.prev_hash != prev_hash:
        return f"{where}: the chain is broken, prev_hash does not match the event before"
    if row.hash != chain_hash(row.prev_hash, row.seq, row.id, row.kind, row.time, row.body):
        return f"{where}: its content does not match its hash"
    return None


def check_readable(row: EventRow) -> None:
    """StoreError for an event that could not be read again once it is recorded."""
    if problem := parse(row)[1]:
        raise StoreError(f"{problem}; it could not be read again, so nothing was recorded")


def parse(row: EventRow) -> tuple[Event | None, str | None]:
    """The typed event, or what keeps it from being one."""
    where = f"event {row.seq} ({row.id})"
    model = BODIES.get(row.kind)
    if model is None:
        return None, f"{where}: unknown kind {row.kind!r}"
    try:
        body = model.model_validate_json(row.body)
    except ValidationError as e:
        return None, f"{where}: body is not a {model.__name__}: {explain(e)}"
    return Event(row.seq, row.id, row.kind, row.time, body, row.hash), None

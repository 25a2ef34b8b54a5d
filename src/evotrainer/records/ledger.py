"""The ledger: everything decided, append-only and hash-chained, in one SQLite file.

One writer (a lock file beside it), any number of readers while it writes (WAL). An event is acknowledged only when it
is on disk (synchronous=FULL). Everything else a run knows is rebuilt from here or named in here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import ValidationError

from evotrainer.errors import IntegrityError, StoreError
from evotrainer.records.durable import WriterLock, fsync_folder, os_errors
from evotrainer.records.events import BODIES
from evotrainer.records.faults import fault_point
from evotrainer.records.recipe import Frozen, explain

SCHEMA_VERSION = 1
APPLICATION_ID = 0x45564F54  # "EVOT", shown by `file`
GENESIS = "0" * 64
"""prev_hash of the first event."""

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE event(
  seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, time TEXT NOT NULL,
  body TEXT NOT NULL, prev_hash TEXT NOT NULL, hash TEXT NOT NULL
) STRICT;
CREATE TRIGGER event_no_update BEFORE UPDATE ON event BEGIN
  SELECT RAISE(ABORT, 'the ledger is append-only: record a correction as a new event');
END;
CREATE TRIGGER event_no_delete BEFORE DELETE ON event BEGIN
  SELECT RAISE(ABORT, 'the ledger is append-only: record a correction as a new event');
END;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
_TRIGGERS = {"event_no_update", "event_no_delete"}
_COLUMNS = "seq, id, kind, time, body, prev_hash, hash"
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the ledger. `time` is UTC, ISO 8601; `hash` covers all other columns and the line before."""

    seq: int
    id: str
    kind: str
    time: str
    body: Frozen
    hash: str


@dataclass(frozen=True, slots=True)
class _Row:
    """An event as stored, unparsed."""

    seq: int
    id: str
    kind: str
    time: str
    body: str
    prev_hash: str
    hash: str


def canonical(body: Frozen) -> str:
    """Canonical JSON of a body: sorted keys, no blanks; lone surrogates become U+FFFD. StoreError for NaN, infinity."""
    try:
        values = _clean(body.model_dump(mode="python"))
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except (ValueError, TypeError) as e:
        raise StoreError(f"{type(body).__name__} cannot be recorded: {e}; record None instead") from None


def _clean(value: Any) -> Any:
    """JSON-able copy of a dumped body without lone surrogates."""
    if isinstance(value, str):
        return _SURROGATE.sub("�", value)
    if isinstance(value, dict):
        return {_clean(str(k)): _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(v) for v in value]
    return value


def chain_hash(prev_hash: str, seq: int, id: str, kind: str, time: str, body: str) -> str:
    """SHA-256 (64 hex) over the JSON array of its arguments; `body` is the canonical JSON text."""
    line = json.dumps([prev_hash, seq, id, kind, time, body], separators=(",", ":"))
    return hashlib.sha256(line.encode()).hexdigest()


class Ledger:
    """An open ledger. Use `Ledger.open`; close it, or use it as a context manager."""

    def __init__(self, path: Path, db: sqlite3.Connection, lock: WriterLock | None) -> None:
        self.path = path
        self._db = db
        self._lock = lock
        self._mutex = threading.RLock()
        self._events: list[Event] = []
        self._by_id: dict[str, Event] = {}
        self._head = GENESIS

    @classmethod
    def open(cls, path: Path | str, create: bool = False, readonly: bool = False) -> Ledger:
        """Open a ledger to write (default) or only to read.

        Raises StoreError: missing file without `create`, held by another writer (names its pid), not a ledger,
        corrupt, written by a newer evotrainer, folder not writable.
        """
        path = Path(path)
        if readonly:
            if not path.is_file():
                raise _missing(path)
            return cls._ready(path, None, create=False)
        if create:
            with os_errors(f"cannot create ledger {path}"):
                path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.is_file():
            raise _missing(path)
        lock = WriterLock(path.with_name(path.name + ".lock"), f"ledger {path}")
        try:
            return cls._ready(path, lock, create)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _ready(cls, path: Path, lock: WriterLock | None, create: bool) -> Ledger:
        with _sqlite_errors(path):
            db = _connect(path, readonly=lock is None)
            try:
                if lock is not None:
                    db.execute("PRAGMA journal_mode=WAL")
                    db.execute("PRAGMA synchronous=FULL")
                    if create and not _has_tables(db):
                        db.executescript(_SCHEMA)
                        fsync_folder(path.parent)
                _check_schema(db, path)
                if (complaint := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                    raise sqlite3.DatabaseError(f"malformed: {complaint}")
            except BaseException:
                db.close()
                raise
        return cls(path, db, lock)

    def append(self, kind: str, id: str, body: Frozen) -> Event:
        """Record an event; durable when this returns. The same id, kind and body again is a no-op.

        Raises IntegrityError where `id` exists with another kind or body, StoreError where it cannot be written.
        """
        if self._lock is None:
            raise StoreError(f"ledger {self.path} is open for reading only; open it for writing")
        if BODIES.get(kind) is not type(body):
            expected = BODIES[kind].__name__ if kind in BODIES else "no known body"
            raise StoreError(f"event {id!r}: kind {kind!r} takes {expected}, got {type(body).__name__}")
        text = canonical(body)
        id = _SURROGATE.sub("�", id)
        with self._mutex:
            if (known := self.get(id)) is not None:
                # The stored text may lack fields that a newer version added with defaults: compare as parsed.
                if known.kind == kind and canonical(known.body) == text:
                    return known
                raise IntegrityError(
                    f"event {id!r} is already recorded with another content (seq {known.seq}, kind {known.kind!r}); "
                    "a correction must be a new event with its own id"
                )
            fault_point(f"before:{id}")
            self._insert(kind, id, text)
            fault_point(f"after:{id}")
            self._refresh()
            return self._by_id[id]

    def _insert(self, kind: str, id: str, text: str) -> None:
        seq, time = len(self._events) + 1, datetime.now(UTC).isoformat(timespec="milliseconds")
        row = (seq, id, kind, time, text, self._head, chain_hash(self._head, seq, id, kind, time, text))
        with _sqlite_errors(self.path):
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.execute(f"INSERT INTO event({_COLUMNS}) VALUES (?,?,?,?,?,?,?)", row)
                fault_point(f"committing:{id}")
                self._db.execute("COMMIT")
            except sqlite3.Error:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def get(self, id: str) -> Event | None:
        """The event of this id, None where it is not recorded."""
        with self._mutex:
            self._refresh()
            return self._by_id.get(id)

    def events(self, kind: str | None = None) -> list[Event]:
        """All events in order, or those of one kind. Raises IntegrityError where the chain does not hold."""
        with self._mutex:
            self._refresh()
            return [e for e in self._events if kind is None or e.kind == kind]

    @property
    def head(self) -> tuple[int, str]:
        """Number of events and the last one's hash: note it elsewhere to prove later that no tail was cut off."""
        with self._mutex:
            self._refresh()
            return len(self._events), self._head

    def _refresh(self) -> None:
        """Read, check and parse what was appended since the last look; earlier events are immutable and kept."""
        for row in self._rows(after=len(self._events)):
            if problem := _broken(row, len(self._events) + 1, self._head):
                raise IntegrityError(
                    f"ledger {self.path}: {problem}; run `evotrainer verify` and restore a copy"
                )
            event, problem = _parse(row)
            if event is None:
                raise IntegrityError(
                    f"ledger {self.path}: {problem}; read it with the evotrainer that wrote it"
                )
            self._events.append(event)
            self._by_id[event.id] = event
            self._head = event.hash

    def _rows(self, after: int = 0) -> list[_Row]:
        query = f"SELECT {_COLUMNS} FROM event WHERE seq > ? ORDER BY seq"
        with _sqlite_errors(self.path):
            return [_Row(*r) for r in self._db.execute(query, (after,))]

    def verify(self) -> list[str]:
        """Problems found by recomputing everything: file structure, triggers, chain, hashes, kinds, bodies."""
        problems: list[str] = []
        try:
            with self._mutex, _sqlite_errors(self.path):
                rows = self._rows()
                names = {
                    r[0] for r in self._db.execute("SELECT name FROM sqlite_master WHERE type='trigger'")
                }
                checks = [str(r[0]) for r in self._db.execute("PRAGMA integrity_check")]
        except StoreError as e:
            return [str(e)]
        problems += [f"SQLite: {c}" for c in checks if c != "ok"]
        problems += [
            f"trigger {t} is missing: events could have been changed" for t in sorted(_TRIGGERS - names)
        ]
        expected, prev = 1, GENESIS
        for row in rows:
            if problem := _broken(row, expected, prev):
                problems.append(problem)
            if (problem := _parse(row)[1]) is not None:
                problems.append(problem)
            expected, prev = row.seq + 1, row.hash
        return problems

    def close(self) -> None:
        """Close the file and give the writer's lock back."""
        with self._mutex:
            self._db.close()
            if self._lock is not None:
                self._lock.release()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


def _broken(row: _Row, seq: int, prev_hash: str) -> str | None:
    """What is wrong with a row's place in the chain or its hash, None if nothing."""
    where = f"event {row.seq} ({row.id})"
    if row.seq != seq:
        return f"{where}: events {seq} to {row.seq - 1} are missing"
    if row.prev_hash != prev_hash:
        return f"{where}: the chain is broken, prev_hash does not match the event before"
    if row.hash != chain_hash(row.prev_hash, row.seq, row.id, row.kind, row.time, row.body):
        return f"{where}: its content does not match its hash"
    return None


def _parse(row: _Row) -> tuple[Event | None, str | None]:
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


def _missing(path: Path) -> StoreError:
    return StoreError(f"no ledger at {path}; give the folder of a run (it holds ledger.db) or start one")


def _connect(path: Path, readonly: bool) -> sqlite3.Connection:
    mode = "ro" if readonly else "rwc"
    if readonly and not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists():
        mode = "ro&immutable=1"  # no writer can be there, and WAL's index cannot be created beside it
    uri = path.absolute().as_uri() + f"?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0)


def _has_tables(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _check_schema(db: sqlite3.Connection, path: Path) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"ledger {path} has schema version {version}, this evotrainer reads up to {SCHEMA_VERSION}; upgrade evotrainer"
        )
    if not db.execute("SELECT 1 FROM sqlite_master WHERE type='table' AND name='event'").fetchone():
        raise StoreError(
            f"{path} is a database but not an EvoTrainer ledger; give the ledger.db of a run folder"
        )


@contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's errors of the block into StoreError with cause and remedy."""
    try:
        with os_errors(f"ledger {path}"):
            yield
    except sqlite3.Error as e:
        raise _explained(path, e) from e


def _explained(path: Path, e: sqlite3.Error) -> StoreError:
    text = str(e)
    if "not a database" in text:
        return IntegrityError(
            f"{path} is not a ledger (not an SQLite database); give the ledger.db of a run folder"
        )
    if "malformed" in text or "corrupt" in text:
        return IntegrityError(
            f"ledger {path} is corrupt ({text}); restore a copy, rollouts and policies are untouched"
        )
    if "is full" in text:
        return StoreError(
            f"ledger {path}: the disk is full; free some space and resume, nothing recorded is lost"
        )
    if "readonly" in text or "unable to open" in text:
        return StoreError(f"ledger {path}: {text}; make the file and its folder writable, or copy the folder")
    if "locked" in text or "busy" in text:
        return StoreError(f"ledger {path}: held by another program; close it and run again")
    return StoreError(f"ledger {path}: {text}; check the disk and run `evotrainer verify`")

"""The ledger: everything decided, append-only and hash-chained, in one SQLite file; and the journal over it.

One writer (a lock file next to it), any number of readers while it writes (WAL). An event is acknowledged only
when it is on disk (synchronous=FULL). Everything else a run knows is rebuilt from here or named in here.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from evotrainer.errors import IntegrityError, StoreError
from evotrainer.records.chain import GENESIS, Event, EventRow, broken, canonical, chain_hash, check_readable, parse
from evotrainer.records.clock import unix_time
from evotrainer.records.closing import Closing
from evotrainer.records.durable import WriterLock, lock_error, os_errors, writer_of
from evotrainer.records.events import BODIES, RunClosed, TrialFinished
from evotrainer.records.faults import fault_point
from evotrainer.records.frozen import Frozen
from evotrainer.records.head import (
    bytes_problem,
    check_end,
    closed_checksum,
    head_problem,
    lag_problem,
    read_head,
    seal_bytes,
    unseal_bytes,
    write_head,
)
from evotrainer.records.sealed import Key, SealedSplits
from evotrainer.records.sqlite_file import RESTORE, missing, open_database, open_still, schema_problems, sqlite_errors
from evotrainer.records.text import clean_text

T = TypeVar("T", bound=Frozen)

_COLUMNS = "seq, id, kind, time, body, prev_hash, hash"


class Ledger(Closing):
    """An open ledger. Use `Ledger.open`; close it, or use it as a context manager."""

    def __init__(self, path: Path, db: sqlite3.Connection, lock: WriterLock | None) -> None:
        self.path = path
        self._db = db
        self._lock = lock
        self._mutex = threading.RLock()
        self._events: list[Event] = []
        self._by_id: dict[str, Event] = {}
        self._head = GENESIS
        self._noted = 0
        self._locked: list[int] = []
        """Places of events with scores that could not be decrypted yet."""

    @classmethod
    def open(cls, path: Path | str, create: bool = False, readonly: bool = False) -> Ledger:
        """Open a ledger to write (default) or only to read.

        Raises StoreError: missing file without `create`, held by another writer (names its pid), not a ledger,
        corrupt, written by a newer evotrainer, folder not writable.
        """
        path = Path(path)
        if not (create and not readonly) and not path.is_file():
            raise missing(path)
        if readonly:
            return cls._ready(path, open_database(path, readonly=True, create=False), None, lambda ledger: None)
        if looked := cls.look(path):  # what is refused is refused before a byte changes
            looked._db.close()
        if create:
            with os_errors(f"cannot create ledger {path}"):
                path.parent.mkdir(parents=True, exist_ok=True)
        lock = WriterLock(path.with_name(path.name + ".lock"), f"ledger {path}")
        try:
            return cls._ready(path, open_database(path, readonly=False, create=create), lock, Ledger._take_up)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def look(cls, path: Path) -> Ledger | None:
        """A ledger that a writer could go on with, read-only, no byte of its folder changed; None where none was begun.

        Raises what `open` raises to write.
        """
        lock = path.with_name(path.name + ".lock")
        if (pid := writer_of(lock)) is not None:
            raise lock_error(f"ledger {path}", pid)
        unlike, db = bytes_problem(path), open_still(path)
        if db is None:
            check_end(path, unlike, (), GENESIS)
            return None
        return cls._ready(path, db, None, lambda ledger: ledger._take_up(unlike))

    @classmethod
    def _ready(
        cls, path: Path, db: sqlite3.Connection, lock: WriterLock | None, check: Callable[[Ledger], None]
    ) -> Ledger:
        try:
            ledger = cls(path, db, lock)
            check(ledger)
        except BaseException:
            db.close()
            raise
        return ledger

    def _take_up(self, unlike: str | None = None) -> None:
        """Refuse to write behind a cut end; catch up where the last writer was killed before it noted its event."""
        hashes = self._hashes()
        noted = check_end(self.path, unlike, hashes, GENESIS)
        if self._lock is not None:
            self._noted = noted[0] if noted else -1
            self._note_head(len(hashes), hashes[-1] if hashes else GENESIS)

    def _note_head(self, events: int, digest: str) -> None:
        if self._noted != events:
            write_head(self.path, (events, digest))
            self._noted = events

    def _hashes(self) -> list[str]:
        with sqlite_errors(self.path):
            return [str(r[0]) for r in self._db.execute("SELECT hash FROM event ORDER BY seq")]

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
        id = clean_text(id)
        with self._mutex:
            if (known := self.get(id)) is not None:
                if known.kind == kind and canonical(_opened(known.body)) == canonical(_opened(body)):
                    return known
                raise IntegrityError(
                    f"event {id!r} is already recorded with another content (seq {known.seq}, kind {known.kind!r}); "
                    "a correction must be a new event with its own id"
                )
            check_readable(EventRow(len(self._events) + 1, id, kind, "", text, "", ""))
            fault_point(f"before:{id}")
            self._note_head(len(self._events), self._head)  # where the disk took the last event and not its note
            self._insert(kind, id, text)
            fault_point(f"after:{id}")
            self._refresh()
            self._note_head(len(self._events), self._head)
            return self._by_id[id]

    def _insert(self, kind: str, id: str, text: str) -> None:
        seq, time = len(self._events) + 1, datetime.fromtimestamp(unix_time(), UTC).isoformat(timespec="milliseconds")
        row = (seq, id, kind, time, text, self._head, chain_hash(self._head, seq, id, kind, time, text))
        unseal_bytes(self.path)
        with sqlite_errors(self.path):
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

    def events(self, kind: str | None = None, after: int = 0) -> list[Event]:
        """All events in order, or those of one kind; `after`: only those behind event number `after`.

        Raises IntegrityError where the chain does not hold.
        """
        with self._mutex:
            self._refresh()
            return [e for e in self._events[after:] if kind is None or e.kind == kind]

    def row(self, id: str) -> EventRow | None:
        """The event of this id as stored, with the hash of the one before; None where it is not recorded."""
        event = self.get(id)
        return self._rows(after=event.seq - 1)[0] if event else None

    @property
    def head(self) -> tuple[int, str]:
        """Number of events and the last one's hash: note it elsewhere to prove later that no tail was cut off."""
        with self._mutex:
            self._refresh()
            return len(self._events), self._head

    def _refresh(self) -> None:
        """Read, check and parse what was appended since the last call; earlier events are immutable and kept."""
        for row in self._rows(after=len(self._events)):
            if problem := broken(row, len(self._events) + 1, self._head):
                raise IntegrityError(f"ledger {self.path}: {problem}; run `evotrainer verify` and restore a copy")
            event, problem = parse(row)
            if event is None:
                raise IntegrityError(f"ledger {self.path}: {problem}; read it with the evotrainer that wrote it")
            self._events.append(event)
            self._by_id[event.id] = event
            self._head = event.hash
            if isinstance(event.body, TrialFinished) and SealedSplits.unread(event.body.scores):
                self._locked.append(len(self._events) - 1)
            if isinstance(event.body, RunClosed) and (key := Key.revealed(event.body.key)):
                key.hold()
        self._decrypt()

    def _decrypt(self) -> None:
        """Read the scores whose key this process holds, or an end revealed."""
        left = []
        for i in self._locked:
            event = self._events[i]
            if (body := SealedSplits.result(event.body)) is event.body or SealedSplits.unread(body.scores):
                left.append(i)
                continue
            self._events[i] = self._by_id[event.id] = replace(event, body=body)
        self._locked = left

    def _rows(self, after: int = 0) -> list[EventRow]:
        query = f"SELECT {_COLUMNS} FROM event WHERE seq > ? ORDER BY seq"
        with sqlite_errors(self.path):
            rows = [EventRow(*r) for r in self._db.execute(query, (after,))]
        for r in rows:
            if any(not isinstance(v, str) for v in (r.id, r.kind, r.time, r.body, r.prev_hash, r.hash)):
                raise IntegrityError(f"ledger {self.path} is corrupt (event {r.seq} holds no text); {RESTORE}")
        return rows

    def verify(self) -> list[str]:
        """Problems found by recomputing everything: file, schema, chain, hashes, kinds, bodies, and the noted head."""
        problems: list[str] = []
        try:
            with self._mutex, sqlite_errors(self.path):
                noted = read_head(self.path)  # before the events, which only grow
                closed = closed_checksum(self.path) is not None
                rows = self._rows()
                problems += schema_problems(self._db)
                checks = [str(r[0]) for r in self._db.execute("PRAGMA integrity_check")]
                later = read_head(self.path)
                closed = closed and closed_checksum(self.path) is not None  # no writer came in between
                if unlike := bytes_problem(self.path):
                    problems.append(unlike)
        except StoreError as e:
            return [*problems, str(e)]
        problems += [f"SQLite: {c}" for c in checks if c != "ok"]
        hashes = [r.hash for r in rows]
        if noted is not None or rows:
            found = head_problem(noted, hashes, GENESIS), lag_problem(later, len(hashes), closed)
            problems += [p for p in found if p]
        expected, prev = 1, GENESIS
        for row in rows:
            if problem := broken(row, expected, prev):
                problems.append(problem)
            if (problem := parse(row)[1]) is not None:
                problems.append(problem)
            expected, prev = row.seq + 1, row.hash
        return problems

    def blind_spots(self) -> list[str]:
        """What `verify` cannot check in this ledger."""
        if closed_checksum(self.path) is None:
            return ["not closed by its writer: bytes of ledger.db that hold no event are not compared"]
        return []

    def close(self) -> None:
        """Close the file, note its checksum, and release the writer's lock."""
        with self._mutex:
            self._db.close()
            if self._lock is not None:
                with suppress(OSError, StoreError):  # a full disk: the events are safe, the notes are only missing
                    if self._lock.held:
                        if self._events:
                            self._note_head(len(self._events), self._head)
                        seal_bytes(self.path)
                self._lock.release()


def _opened(body: Frozen) -> Frozen:
    return SealedSplits.result(body) if isinstance(body, TrialFinished) else body


class Journal:
    """Runs the steps of a round over a ledger; a resumed run walks the same steps and skips what is recorded."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def step(self, id: str, kind: str, run: Callable[[], T]) -> T:
        """The recorded body of `id`, or the result of `run()`, recorded and then returned as it was recorded.

        `run` may be repeated if the process dies between its effect and the record: its effects must be idempotent.
        Fault points: `start:<id>` before `run`, `before:<id>` between effect and record, `after:<id>` once durable.
        Raises IntegrityError where `id` is recorded with another kind, and what `run` raises (nothing is recorded).
        """
        event = self.ledger.get(id)
        if event is None:
            fault_point(f"start:{id}")
            event = self.ledger.append(kind, id, run())
        elif event.kind != kind:
            raise IntegrityError(
                f"event {id!r} is recorded as {event.kind!r}, asked for {kind!r}; "
                "resume with the evotrainer that started the run"
            )
        return event.body

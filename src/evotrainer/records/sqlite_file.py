"""The SQLite file under the ledger: schema, connections, and SQLite's errors in plain words."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evotrainer.errors import IntegrityError, StoreError
from evotrainer.records.durable import fsync, os_errors
from evotrainer.records.events.run import FORMAT

APPLICATION_ID = 0x45564F54  # "EVOT", shown by `file`
RESTORE = "restore a copy of ledger.db and of the ledger.* files beside it; rollouts and policies are untouched"

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
PRAGMA user_version = {FORMAT};
COMMIT;
"""
TRIGGERS = {"event_no_update", "event_no_delete"}


def schema_problems(db: sqlite3.Connection) -> list[str]:
    """What a ledger file declares that `_SCHEMA` does not, and what it lacks."""
    declared = {(r[0], r[1]): r[2] for r in db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql NOT NULL")}
    with sqlite3.connect(":memory:") as fresh:
        fresh.executescript(_SCHEMA)
        ours = {
            (r[0], r[1]): r[2] for r in fresh.execute("SELECT type, name, sql FROM sqlite_master WHERE sql NOT NULL")
        }
    fresh.close()
    problems = [
        f"trigger {n} is missing: events could have been changed" for n in sorted(TRIGGERS - {n for _, n in declared})
    ]
    problems += [f"{kind} {name} is none of a ledger's" for kind, name in sorted(declared.keys() - ours.keys())]
    problems += [
        f"{k} {n} is not as a ledger declares it"
        for k, n in sorted(ours)
        if declared.get((k, n), ours[k, n]) != ours[k, n]
    ]
    (application,) = db.execute("PRAGMA application_id").fetchone()
    return problems if application == APPLICATION_ID else [*problems, f"its application id is {application:#x}"]


def missing(path: Path) -> StoreError:
    """The error for a ledger that is not there."""
    return StoreError(f"no ledger at {path}; give the folder of a run (it holds ledger.db) or start one")


def _connect(path: Path, readonly: bool) -> sqlite3.Connection:
    mode = "ro" if readonly else "rwc"
    if readonly and not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists():
        mode = "ro&immutable=1"  # no writer can be there, and WAL's index cannot be created next to it
    uri = path.absolute().as_uri() + f"?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0)


def open_database(path: Path, readonly: bool, create: bool) -> sqlite3.Connection:
    """A checked connection to a ledger file; StoreError or IntegrityError where it cannot be one."""
    with sqlite_errors(path):
        db = _connect(path, readonly)
        try:
            if create and not _has_tables(db):
                db.execute("PRAGMA journal_mode=WAL")
                db.executescript(_SCHEMA)
                fsync(path.parent)
            _check_sound(db, path)
            if not readonly:
                db.execute("PRAGMA journal_mode=WAL")
                db.execute("PRAGMA synchronous=FULL")
        except BaseException:
            db.close()
            raise
    return db


def open_still(path: Path) -> sqlite3.Connection | None:
    """A checked read-only connection; None where no ledger was begun there. What a killed writer left in the log
    (`-wal`) is read with it: SQLite then makes the log's index (`-shm`) anew, and nothing else is written."""
    if not path.is_file():
        return None
    log = path.with_name(path.name + "-wal").exists()
    with sqlite_errors(path):
        uri = path.absolute().as_uri() + ("?mode=ro" if log else "?mode=ro&immutable=1")
        db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0)
        try:
            begun = _has_tables(db)
            if begun:
                _check_sound(db, path)
        except BaseException:
            db.close()
            raise
    if not begun:
        db.close()
    return db if begun else None


def _check_sound(db: sqlite3.Connection, path: Path) -> None:
    _check_schema(db, path)
    if (complaint := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise sqlite3.DatabaseError(f"malformed: {complaint}")


def _has_tables(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _check_schema(db: sqlite3.Connection, path: Path) -> None:
    if not _has_tables(db):
        raise StoreError(f"{path} is empty: its run is just being started, or ended before it began; try again")
    if not db.execute("SELECT 1 FROM sqlite_master WHERE type='table' AND name='event'").fetchone():
        raise StoreError(f"{path} is a database but not an EvoTrainer ledger; give the ledger.db of a run folder")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version < 1:
        raise IntegrityError(f"ledger {path} is corrupt (its schema version is {version}); {RESTORE}")
    first = db.execute("SELECT body FROM event WHERE seq = 1 AND kind = 'run'").fetchone()
    written = _format_of(first[0]) if first else FORMAT
    if written != FORMAT or version != FORMAT:
        raise StoreError(
            f"{path} was written by another version of evotrainer (run format {written or 'none'}; this one reads "
            f"format {FORMAT}); read it with the version that wrote it, or start a new run"
        )


def _format_of(body: str) -> object:
    """What a run's first event says of its format; this one's where its body is no JSON, which the chain tells of."""
    try:
        return json.loads(body).get("format")
    except (ValueError, AttributeError):
        return FORMAT


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's errors of the block into StoreError with cause and remedy."""
    try:
        with os_errors(f"ledger {path}"):
            yield
    except (sqlite3.Error, UnicodeDecodeError) as e:
        raise _explained(path, e) from e


def _explained(path: Path, e: Exception) -> StoreError:
    text = str(e)
    if "not a database" in text:
        return IntegrityError(f"{path} is not a ledger (not an SQLite database); give the ledger.db of a run folder")
    if any(word in text for word in ("malformed", "corrupt", "decode")):
        return IntegrityError(f"ledger {path} is corrupt ({text}); {RESTORE}")
    if "is full" in text:
        return StoreError(f"ledger {path}: the disk is full; free some space and resume, nothing recorded is lost")
    if "readonly" in text or "unable to open" in text:
        return StoreError(f"ledger {path}: {text}; make the file and its folder writable, or copy the folder")
    if "locked" in text or "busy" in text:
        return StoreError(f"ledger {path}: held by another program; close it and run again")
    return StoreError(f"ledger {path}: {text}; check the disk and run `evotrainer verify`")

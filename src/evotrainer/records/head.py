"""How far a ledger reached, noted in a file next to it, so that a ledger that was cut short or put back is recognised.

A hash chain proves that nothing inside it was changed, and says nothing about what was cut off its end.
Two small files do:

    ledger.head         number of events and hash of the last one; replaced, durably, after every event
    ledger.db.sha256    checksum of the closed ledger file, in the format of `sha256sum -c`; gone while it is written

The first lags by one event where a writer was killed between the two writes, never by more. The second covers every
byte of the file, also those that hold no event. Who can write both and the ledger can rewrite all of it: against that
helps only a head noted elsewhere (`evotrainer verify RUN --head HASH`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from evotrainer.errors import IntegrityError
from evotrainer.records.durable import fsync, os_errors, os_trouble, replace_synced, sha256_file
from evotrainer.records.regular_file import read_bytes, read_text

SHORTEST = 16
"""Digits of a noted head that are needed to compare it."""

Head = tuple[int, str]
"""Number of events, hash of the last one."""


def head_path(ledger: Path) -> Path:
    """The head file of a ledger file."""
    return ledger.with_suffix(".head")


def note_path(ledger: Path) -> Path:
    """The checksum file of a ledger file."""
    return ledger.with_name(ledger.name + ".sha256")


def write_head(ledger: Path, head: Head) -> None:
    """Note how far a ledger reaches; durable when this returns."""
    with os_errors(f"cannot write {head_path(ledger)}"):
        replace_synced(head_path(ledger), f"{head[0]} {head[1]}\n".encode())


def read_head(ledger: Path) -> Head | None:
    """The noted head, None where there is no file. IntegrityError where it is not what `write_head` writes."""
    path = head_path(ledger)
    try:
        text = read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise os_trouble(f"cannot read {path}", e) from e
    found = re.fullmatch(rb"(0|[1-9][0-9]*) ([0-9a-f]{64})\n", text)
    if found is None:
        raise IntegrityError(f"{path} is damaged: it holds no number of events and hash; restore a copy")
    return int(found[1]), found[2].decode()


def cut_off(noted: Head, events: int) -> str | None:
    """That a ledger of so many events ends before the head that was noted of it."""
    n = noted[0]
    if n <= events:
        return None
    return (
        f"it ends at event {events}, its head file at {n}: {n - events} event(s) were cut off, "
        "or an older copy was put back"
    )


def head_problem(noted: Head | None, hashes: Sequence[str], genesis: str) -> str | None:
    """What a noted head says against the hashes of a ledger's events, oldest first; None if nothing."""
    if noted is None:
        return "its head file is missing: events may have been cut off its end; restore ledger.head from a copy"
    n, digest = noted
    if problem := cut_off(noted, len(hashes)):
        return problem
    if (hashes[n - 1] if n else genesis) != digest:
        return f"event {n} is not the one its head file names: the ledger, or its head file, was replaced"
    return None


def lag_problem(noted: Head | None, events: int, closed: bool) -> str | None:
    """That a head file read *after* the events is further behind them than a killed writer leaves it: one event, and
    none where the ledger was closed."""
    if noted is None or events - noted[0] <= (0 if closed else 1):
        return None
    return (
        f"its head file stops at event {noted[0]} of {events}: an older copy was put back, "
        "or events were added by others"
    )


def check_end(ledger: Path, unlike: str | None, hashes: Sequence[str], genesis: str) -> Head | None:
    """The noted head. IntegrityError where a writer must not go on behind these events, given by their hashes;
    `unlike`: what `bytes_problem` said."""
    noted, closed = read_head(ledger), closed_checksum(ledger) is not None
    if unlike and (hashes or not noted or not noted[0]):  # what was cut off altogether is said below
        raise IntegrityError(
            f"ledger {ledger}: {unlike}; where the change is known and `evotrainer verify` finds nothing else, "
            f"delete {ledger.name}.sha256 and go on"
        )
    if noted is not None or hashes:
        problem = head_problem(noted, hashes, genesis) or lag_problem(noted, len(hashes), closed)
        if problem:
            last = hashes[-1] if hashes else genesis
            raise IntegrityError(
                f"ledger {ledger}: {problem}; restore a copy of the run. Only where you know that no event is "
                f"missing, write `{len(hashes)} {last}` into ledger.head and go on"
            )
    return noted


def closed_checksum(ledger: Path) -> str | None:
    """The checksum noted when the ledger was closed; None while it is open, or where it was not closed properly."""
    try:
        text = read_text(note_path(ledger))
    except (OSError, UnicodeDecodeError):
        return None if not note_path(ledger).exists() else ""
    found = re.fullmatch(rf"([0-9a-f]{{64}})  {re.escape(ledger.name)}\n", text)
    return found[1] if found else ""


def bytes_problem(ledger: Path) -> str | None:
    """That the ledger file is not, byte for byte, the one that was closed; None where it is or nothing was noted."""
    noted = closed_checksum(ledger)
    if noted is None or waiting(ledger):
        return None
    if not noted:
        return f"{note_path(ledger).name} is damaged: it holds no checksum of {ledger.name}; restore a copy"
    with os_errors(f"cannot read {ledger}"):
        found = sha256_file(ledger)
    if found != noted and closed_checksum(ledger) == noted:  # else a writer came in between
        return f"{ledger.name} is not, byte for byte, the file that was closed; restore a copy"
    return None


def waiting(ledger: Path) -> bool:
    """Whether SQLite keeps events in its write-ahead log that are not in the ledger file yet."""
    try:
        return ledger.with_name(ledger.name + "-wal").stat().st_size > 0
    except OSError:
        return False


def seal_bytes(ledger: Path) -> None:
    """Note the checksum of a closed ledger file; nothing where another connection keeps its log open."""
    if ledger.is_file() and not waiting(ledger):
        replace_synced(note_path(ledger), f"{sha256_file(ledger)}  {ledger.name}\n".encode())


def unseal_bytes(ledger: Path) -> None:
    """Take the note away before the file changes."""
    if note_path(ledger).exists():
        with os_errors(f"cannot write next to {ledger}"):
            note_path(ledger).unlink()
            fsync(ledger.parent)

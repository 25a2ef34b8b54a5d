"""The rollout store: an append-only tail log, sealed into immutable Parquet parts. One folder has one writer.

`append` returns when its groups are on disk (one fsync a call). A rollout's id makes a replay a no-op. Files:

    tail.log                    frames not sealed yet (frames.py)
    part-00000.parquet          sealed, never changed
    part-00000.parquet.sha256   its checksum, in the format of `sha256sum -c`
    part-00000.enc              of gate and cert: a part as one encrypted message (sealed.py), in place of .parquet
    writer.lock                 pid of the writer
    torn-<n>.bin                bytes cut from a tail's end that may have been more than a torn write
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.errors import IntegrityError, StoreError
from evotrainer.records.arrow_schema import arrow_schema, encode, scrub
from evotrainer.records.closing import Closing
from evotrainer.records.durable import (
    WriterLock,
    fsync,
    os_errors,
    replace_synced,
    sha256_file,
    write_all,
    write_synced,
)
from evotrainer.records.faults import fault_point
from evotrainer.records.frames import Tail, batch_frame, read_tail, schema_frame
from evotrainer.records.reading import (
    LOCK,
    TAIL,
    part_ids,
    read_checksum,
    row_count,
    stored_parts,
)
from evotrainer.records.rollout import Rollout
from evotrainer.records.sealed import SealedSplits

if TYPE_CHECKING:
    import pyarrow as pa

    from evotrainer.records.sealed import Key

SEAL_BYTES = 16 << 20
"""Length of the tail at which it is sealed by itself; sealing takes about ten times this in memory."""
ROW_GROUP = 8192
_DICTIONARY = [
    "task",
    "outcome",
    "finish",
    "run",
    "branch",
    "policy",
    "split",
    "group",
    "sandbox_tier",
    "knobs",
]
_DICTIONARY += ["env_hash", "error_kind", "turns.list.element.role", "components.list.element.name"]


@dataclass(frozen=True, slots=True)
class StoredPart:
    """An immutable Parquet part; `sha256` (64 hex) is to be recorded in the ledger."""

    path: Path
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening a store found after a crash: bytes cut from the tail's end, rollouts kept in the tail."""

    bytes_cut: int = 0
    rows_kept: int = 0
    saved: Path | None = None
    """Where cut bytes were kept: a complete frame that does not match its checksum, or a repaired tail."""


class RolloutStore(Closing):
    """The writer of one folder. Raises StoreError where another process writes it, the disk is full, ..."""

    def __init__(
        self, folder: Path | str, seal_bytes: int = SEAL_BYTES, repair: bool = False, key: Key | None = None
    ) -> None:
        """Open or create `folder` and recover what a crash left. `key`: everything is encrypted with it.

        A damaged stretch inside the tail raises IntegrityError; `repair` keeps the good frames and moves the damaged
        tail aside instead.
        """
        self.folder = Path(folder)
        self.seal_bytes = seal_bytes
        self.key = key
        with os_errors(f"cannot create rollout folder {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = WriterLock(self.folder / LOCK, f"rollout folder {self.folder}")
        self._fd = -1
        try:
            with os_errors(f"cannot open rollout folder {self.folder}"):
                self._open(repair)
        except BaseException:
            self.close()
            raise

    def _open(self, repair: bool) -> None:
        for leftover in self.folder.glob("*.tmp"):
            leftover.unlink()
        self._parts = [_stored(p) for p in stored_parts(self.folder)]
        sealed: set[str] = set().union(*(part_ids(p.path) for p in self._parts))
        tail = read_tail(self.folder / TAIL)
        self.recovered = self._recover(tail, repair)
        if repair:
            tail = read_tail(self.folder / TAIL)
        ids = [i for batch in tail.batches() for i in batch.column("id").to_pylist()]
        if ids and sealed.issuperset(ids):  # killed between the part's rename and the fresh tail
            self._fresh_tail()
        elif tail.frames:
            self._fd = os.open(self.folder / TAIL, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            self._end, self._tail_rows = tail.end, len(ids)
        else:
            self._fresh_tail()
        self._known = sealed.union(ids)

    def _recover(self, tail: Tail, repair: bool) -> Recovery:
        """Cut what a crash left after the last good frame."""
        saved = None
        if tail.damaged and not repair:
            raise IntegrityError(
                f"{tail.complaint()}; restore a copy, or keep the good frames: in Python, "
                f"evotrainer.records.store.RolloutStore({str(self.folder)!r}, repair=True)"
            )
        if tail.damaged or tail.complete:
            names = (self.folder / f"torn-{n}.bin" for n in range(10**6))
            saved = next(p for p in names if not p.exists())
            write_synced(saved, tail.data if tail.damaged else tail.data[tail.end :])
            fsync(self.folder)
        if tail.damaged:
            good = b"".join(tail.data[s.start : s.end] for s in tail.frames)
            replace_synced(tail.path, good if tail.frames[0].start == 0 else schema_frame() + good)
        elif tail.torn:
            with tail.path.open("r+b") as f:
                f.truncate(tail.end)
                os.fsync(f.fileno())
        lost = tail.torn + sum(s.end - s.start for s in tail.damaged)
        return Recovery(lost, sum(b.num_rows for b in tail.batches()), saved)

    def _fresh_tail(self) -> None:
        replace_synced(self.folder / TAIL, schema_frame())
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = os.open(self.folder / TAIL, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._end, self._tail_rows = os.fstat(self._fd).st_size, 0

    def __contains__(self, id: str) -> bool:
        return id in self._known

    def __len__(self) -> int:
        return len(self._known)

    def append(self, groups: Sequence[Sequence[Rollout]]) -> int:
        """Store groups, one frame each; durable when this returns. Returns the rollouts that were not stored yet.

        All or nothing to the caller: after an error nothing of this call counts as stored, and it may be repeated.
        """
        self._check_open()
        fresh, frames = self._encode(groups)
        if not fresh:
            return 0
        try:
            for data in frames:
                write_all(self._fd, data)
                fault_point("store:frame-written")
            os.fsync(self._fd)
        except OSError as e:
            self._undo()
            with os_errors(f"cannot store rollouts in {self.folder}"):
                raise e
        fault_point("store:fsynced")
        self._end += sum(map(len, frames))
        self._tail_rows += len(fresh)
        self._known.update(fresh)
        if self._end >= self.seal_bytes:
            self.seal()
        return len(fresh)

    def _encode(self, groups: Sequence[Sequence[Rollout]]) -> tuple[set[str], list[bytes]]:
        """Ids not stored yet and the frames that hold them."""
        fresh: dict[str, Rollout] = {}
        sizes = []
        for group in groups:
            new = {r.id: r for r in reversed(group) if r.id not in self._known and r.id not in fresh}
            fresh |= reversed(new.items())
            sizes.append(len(new))
        if not fresh:
            return set(), []
        try:
            batch = encode(list(fresh.values()))  # once for the call: a batch has a fixed cost of 30 columns
        except UnicodeEncodeError:
            return self._encode([[scrub(r) for r in group] for group in groups])
        starts = accumulate(sizes, initial=0)
        spans = ((a, n) for a, n in zip(starts, sizes, strict=False) if n)
        return set(fresh), [batch_frame(batch.slice(a, n), self.key) for a, n in spans]

    def _undo(self) -> None:
        # After a failed write or fsync the tail's end is unknown: cut it back, or stop writing altogether.
        try:
            os.ftruncate(self._fd, self._end)
            os.fsync(self._fd)
        except OSError:
            self.close()

    def seal(self) -> list[StoredPart]:
        """Turn the tail into an immutable Parquet part; returns all parts of the folder, oldest first.

        Crash-safe at each point: the tail goes only after the part is durable, and readers drop rows seen in both.
        """
        self._check_open()
        if self._tail_rows:
            with os_errors(f"cannot seal rollouts in {self.folder}"):
                fault_point("store:sealing")
                self._parts.append(self._write_part(self._tail_table()))
                fault_point("store:part-renamed")
                self._fresh_tail()
            fault_point("store:sealed")
        return list(self._parts)

    def adopt(self, table: pa.Table) -> StoredPart:
        """Store rollouts that were read from another store, columns of `arrow_schema()`, as a part of their own;
        StoreError where one is here already."""
        self._check_open()
        ids = table.column("id").to_pylist()
        if not self._known.isdisjoint(ids) or len(set(ids)) < len(ids):
            raise StoreError(f"rollout folder {self.folder} holds rollouts of these ids already; use an empty folder")
        with os_errors(f"cannot store rollouts in {self.folder}"):
            self._parts.append(self._write_part(table.combine_chunks()))
        self._known.update(ids)
        return self._parts[-1]

    def _tail_table(self) -> pa.Table:
        import pyarrow as pa

        tail = read_tail(self.folder / TAIL)
        if complaint := tail.complaint():
            raise IntegrityError(f"{complaint}; it is not sealed: restore a copy of the tail")
        # One chunk: Parquet writes thousands of small ones at half the speed.
        return pa.Table.from_batches(list(tail.batches()), arrow_schema()).combine_chunks()

    def _write_part(self, table: pa.Table) -> StoredPart:
        import pyarrow.parquet as pq

        number = 1 + max((int(p.path.stem.removeprefix("part-")) for p in self._parts), default=-1)
        path = self.folder / f"part-{number:05d}{SealedSplits.SUFFIX if self.key else '.parquet'}"
        temporary = path.with_name(path.name + ".tmp")
        with temporary.open("wb") as f:
            to = io.BytesIO() if self.key else f
            pq.write_table(table, to, **parquet_options())
            if self.key and isinstance(to, io.BytesIO):  # in memory: nothing of it is ever on the disk in clear
                f.write(self.key.encrypt(to.getvalue()))
            f.flush()
            os.fsync(f.fileno())
        fault_point("store:part-written")
        sha256 = sha256_file(temporary)
        # The checksum goes first: a part without one would be unverifiable, a checksum without a part is overwritten.
        replace_synced(path.with_name(path.name + ".sha256"), f"{sha256}  {path.name}\n".encode())
        fault_point("store:checksum-written")
        os.replace(temporary, path)
        fsync(self.folder)
        return StoredPart(path, table.num_rows, sha256)

    def _check_open(self) -> None:
        if self._fd < 0:
            raise StoreError(
                f"rollout store {self.folder} is closed (after an earlier error, or by its owner); open it again"
            )

    def close(self) -> None:
        """Close the tail and release the lock; nothing is pending, `append` is durable by itself."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._lock.release()


def parquet_options() -> dict[str, object]:
    """How parts are written."""
    return {
        "compression": "zstd",
        "compression_level": 3,
        "row_group_size": ROW_GROUP,
        "use_dictionary": _DICTIONARY,
        "write_page_checksum": True,
        "write_statistics": ["step", "seed", "split", "branch", "reward"],
    }


def _stored(path: Path) -> StoredPart:
    return StoredPart(path, row_count(path), read_checksum(path) or sha256_file(path))

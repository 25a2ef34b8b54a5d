"""The tail log: crc-framed, zstd-compressed Arrow record batches, one frame per group.

Header (little-endian, 20 bytes): magic (`EVOS` schema, `EVOF` record batch), stored length, uncompressed
length, crc32 of the stored bytes, crc32 of the header before it. A file starts with its schema frame. A bad
stretch at the end is what a crash leaves and was never acknowledged; one with good frames behind it is damage,
and never cut. Of gate and cert the compressed bytes of a batch are encrypted (sealed.py).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.errors import IntegrityError, StoreError
from evotrainer.records import caps
from evotrainer.records.arrow_schema import arrow_schema, check_version
from evotrainer.records.durable import os_errors
from evotrainer.records.regular_file import read_bytes
from evotrainer.records.sealed import Key, SealedSplits

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = b"EVOS"
BATCH = b"EVOF"
_HEADER = struct.Struct("<4sIII")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CRC.size


@cache
def _codec() -> pa.Codec:
    import pyarrow as pa

    return pa.Codec("zstd", compression_level=1)


def _frame(magic: bytes, payload: pa.Buffer, key: Key | None = None) -> bytes:
    data = _codec().compress(payload, asbytes=True)
    if key is not None:
        data = key.encrypt(data)
    head = _HEADER.pack(magic, len(data), len(payload), zlib.crc32(data))
    return head + _CRC.pack(zlib.crc32(head)) + data


def schema_frame() -> bytes:
    """The first frame of a tail."""
    return _frame(SCHEMA, arrow_schema().serialize())


def batch_frame(batch: pa.RecordBatch, key: Key | None = None) -> bytes:
    """The frame of one group, encrypted where a key is given."""
    return _frame(BATCH, batch.serialize(), key)


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [start, end) of a tail; `raw`: uncompressed length of a good frame, -1 where damaged."""

    start: int
    end: int
    raw: int


@dataclass(frozen=True, slots=True)
class Tail:
    """A tail as found on disk: its good frames, and what is not a good frame."""

    path: Path
    data: bytes
    frames: tuple[Span, ...]
    damaged: tuple[Span, ...]
    """Bad stretches with good frames behind them."""
    end: int
    """End of the last good frame."""
    complete: bool
    """The bytes after `end` start with a complete frame whose content is damaged: more than a torn write."""

    @property
    def torn(self) -> int:
        """Bytes after the last good frame."""
        return len(self.data) - self.end

    def complaint(self) -> str | None:
        """What is wrong beyond an honest crash, None if nothing."""
        if self.damaged:
            where = ", ".join(f"bytes {s.start} to {s.end}" for s in self.damaged)
            after = sum(1 for f in self.frames if f.start > self.damaged[0].start)
            return f"{self.path} is damaged at {where} ({after} good frames follow)"
        if self.complete:
            return f"{self.path}: its last frame, at byte {self.end}, does not match its checksum"
        return None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The record batches of all good frames; EncryptedError where they cannot be read yet."""
        import pyarrow as pa

        schema = arrow_schema()
        try:
            caps.within(sum(s.raw for s in self.frames), len(self.data))
        except caps.TooLargeError as e:
            raise StoreError(f"{self.path}: {e}") from e
        try:
            for span in self.frames:
                payload = pa.py_buffer(self._payload(span))
                if self.data.startswith(BATCH, span.start):
                    yield pa.ipc.read_record_batch(payload, schema)
                else:
                    schema = pa.ipc.read_schema(payload)
                    check_version(schema, str(self.path))
        except (pa.ArrowException, OSError) as e:
            raise IntegrityError(f"{self.path}: a frame does not decode ({e}); restore a copy") from e

    def _payload(self, span: Span) -> bytes:
        stored = memoryview(self.data)[span.start + HEADER_BYTES : span.end]
        plain = SealedSplits.plain(stored, self.path.absolute().parents[2])
        return bytes(_codec().decompress(plain, span.raw, asbytes=True))


MAX_TAIL = 1 << 30
"""Bytes; a writer seals at 16 MB, or after the one batch that is larger."""


def read_tail(path: Path) -> Tail:
    """Read a tail and tell its good frames from the rest; a missing file is an empty tail."""
    try:
        data = read_bytes(path, MAX_TAIL, os.O_NOFOLLOW)  # others' folders may hold a device in its place
    except FileNotFoundError:
        data = b""
    except OSError:
        with os_errors(f"cannot read {path}"):
            raise
    frames: list[Span] = []
    damaged: list[Span] = []
    at = 0
    while at < len(data):
        span = _frame_at(data, at)
        if span is not None and span.raw >= 0:
            frames.append(span)
            at = span.end
            continue
        following = _next_good(data, at + 1)
        if following is None:
            return Tail(path, data, tuple(frames), tuple(damaged), at, complete=span is not None)
        damaged.append(Span(at, following, -1))
        at = following
    return Tail(path, data, tuple(frames), tuple(damaged), at, complete=False)


def _frame_at(data: bytes, at: int) -> Span | None:
    """The frame at `at`; raw -1 where it is complete but its content is damaged; None where no whole frame is."""
    if len(data) - at < HEADER_BYTES:
        return None
    magic, length, raw, crc = _HEADER.unpack_from(data, at)
    (head_crc,) = _CRC.unpack_from(data, at + _HEADER.size)
    if magic not in (SCHEMA, BATCH) or head_crc != zlib.crc32(data[at : at + _HEADER.size]):
        return None
    start, end = at + HEADER_BYTES, at + HEADER_BYTES + length
    if end > len(data):
        return None
    good = zlib.crc32(memoryview(data)[start:end]) == crc
    return Span(at, end, raw if good else -1)


def _next_good(data: bytes, at: int) -> int | None:
    """Start of the first good record batch at or after `at`."""
    while (at := data.find(BATCH, at)) >= 0:
        span = _frame_at(data, at)
        if span is not None and span.raw >= 0:
            return at
        at += 1
    return None

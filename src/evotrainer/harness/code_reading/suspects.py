"""Which texts must be read to know whether they go for the grader: passes of RE2 over the bytes of all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evotrainer.harness.code_reading import judge_appeals
from evotrainer.harness.code_reading.bypass import GATE

_Places = NDArray[np.int64]
ONE_PASS_FROM = 1 << 20
"""Bytes of text from which a search for literals needs one pass over all rather than one of each text."""
SUSPICIOUS = GATE, r"conftest|customize\.py|pytest\.ini|\.pth\b", judge_appeals.SPOKEN
"""In RE2's syntax: the gates of all rules for programs, files that test runners load, what answers say to a judge. One
after the other: as one pattern they outgrow the memory of RE2's automaton, and cost seven times as much."""


def suspicious_rows(text: bytes, starts: _Places, ends: _Places) -> list[int]:
    """Rows of a buffer of texts that may go for the grader."""
    return sorted({i for pattern in SUSPICIOUS for i in _matching(text, starts, ends, pattern)})


def rows_with(text: bytes, starts: _Places, ends: _Places, pattern: str, least: int = ONE_PASS_FROM) -> Iterable[int]:
    """Rows in which a pattern of RE2 is; all rows of a buffer below `least` bytes, where a pass is not worth it."""
    return _matching(text, starts, ends, pattern) if len(text) >= least else range(len(starts))


def _matching(text: bytes, starts: _Places, ends: _Places, pattern: str) -> list[int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(starts):
        return []
    offsets = np.concatenate([starts[:1], ends]).astype(np.int64)
    array: Any = pa.LargeStringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(text))
    found = pc.match_substring_regex(array, pattern)
    rows: list[int] = np.flatnonzero(found.to_numpy(zero_copy_only=False)).tolist()
    return rows

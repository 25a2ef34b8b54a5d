"""One pass over the bytes of completions: words, repetition, equal lines, a name-free solution hash, a word-set sketch.

The kernel is plain Python over integers. With numba (extra `audit`) the same function is compiled, about 90 times
faster; without it large batches are slow and small ones the same. Text is read as UTF-8 bytes: a word is a run of
letters, digits, `_` and non-ASCII bytes; every other visible byte is a word of its own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np

from evotrainer.harness.columns.numerics import Floats, Ints
from evotrainer.harness.text import KEPT_NAMES, MAX_BYTES, fenced

SLOTS = 64
"""Slots of the word-set sketch: one-permutation MinHash (Li, Owen, Zhang, arXiv 1208.1259), 8 bits a slot, 0: empty."""
COMPILE_FROM = 1 << 20
"""Bytes of text, read by this process, from which compiling (or loading the compiled kernel) pays."""
_read: list[int] = []
"""These bytes so far."""

M32 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Scan:
    """Readings of N texts, each of shape (N,) but `sketch`."""

    words: Floats
    repetition: Floats
    """Share of word 4-grams that occurred before in the same text; 0 below four words."""
    line_run: Floats
    """Longest run of equal non-empty lines; blanks at their ends are ignored, indentation is not."""
    visible: Floats
    """1 where there is a visible character."""
    solution: Ints
    """Equal for texts that are equal up to comments, layout and (in programs) names."""
    sketch: np.ndarray
    """[N, SLOTS] uint8"""
    fenced: np.ndarray
    """Texts with a fenced block, bool"""


def scan_buffer(buffer: Any, starts: Ints, ends: Ints) -> Scan:
    """Read N texts, spans of one buffer of bytes (of each its first MAX_BYTES); of several fenced Python blocks the
    last one is the solution, wherever it stands."""
    first, last = _solutions(buffer, starts, ends)
    if not can_compile():  # attempts are often alike: each distinct text is read once
        data = bytes(buffer)
        of: dict[bytes, int] = {}
        same = [
            of.setdefault(data[a:z], i) for i, (a, z) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True))
        ]
        if len(of) < len(same):
            rows, back = np.unique(same, return_inverse=True)
            whole = _read_spans(buffer, starts[rows], ends[rows], first[rows], last[rows])
            return Scan(**{f.name: getattr(whole, f.name)[back] for f in fields(Scan)})
    return _read_spans(buffer, starts, ends, first, last)


def _read_spans(buffer: Any, starts: Ints, ends: Ints, first: Ints, last: Ints) -> Scan:
    """Readings of the spans starts:ends; solutions behind what is read of a text are read as texts of their own."""
    found = _scan(buffer, starts, np.minimum(ends, starts + MAX_BYTES), first, last)
    far = np.flatnonzero(last > starts + MAX_BYTES) if len(starts) else starts
    # of a text without a fence its beginning
    if len(far := far[first[far] > starts[far]]):
        a, z = first[far], np.minimum(last[far], first[far] + MAX_BYTES)
        found.solution[far] = _scan(buffer, a, z, a, z).solution
    return found


def _scan(buffer: Any, starts: Ints, ends: Ints, first: Ints, last: Ints) -> Scan:
    """Readings of the spans starts:ends, with their solutions at first:last."""
    n = len(starts)
    out = np.zeros((n, 4)), np.zeros(n, np.int64), np.zeros((n, SLOTS), np.uint8)
    _read.append(int((ends - starts).sum()) + (_read.pop() if _read else 0))
    compiled = _read[0] >= COMPILE_FROM and can_compile()
    table = 1 << 16
    if compiled:
        data: Any = np.frombuffer(buffer, dtype=np.uint8)
        args = (starts, ends, first, last)
        scratch: list[Any] = [np.zeros(table, np.int64) for _ in range(4)]
        kernel, kept = _compiled(), _kept_table()
        tables: Any = out
    else:
        data = bytes(buffer) if not isinstance(buffer, bytes) else buffer
        args = tuple(a.tolist() for a in (starts, ends, first, last))
        scratch = [[0] * table for _ in range(4)]
        kernel, kept = _kernel, _kept_table().tolist()
        tables = [[0.0] * 4 for _ in range(n)], [0] * n, [[0] * SLOTS for _ in range(n)]
    kernel(data, *args, kept, *scratch, *tables)
    numbers = np.asarray(tables[0], dtype=np.float64).reshape(n, 4)
    return Scan(
        words=numbers[:, 0],
        repetition=numbers[:, 1],
        line_run=numbers[:, 2],
        visible=numbers[:, 3],
        solution=np.asarray(tables[1], dtype=np.int64).reshape(n),
        sketch=np.asarray(tables[2], dtype=np.uint8).reshape(n, SLOTS),
        fenced=(first > starts) | (last < ends),
    )


def can_compile() -> bool:
    """Is numba installed?"""
    return importlib.util.find_spec("numba") is not None


def jaccard(a: np.ndarray, b: np.ndarray) -> Floats:
    """Estimated Jaccard similarity of the word sets behind two sketches [N, SLOTS]; NaN where both are empty.

    Matching slots over slots that either uses; 8-bit values collide once in 255, which is taken out.
    """
    used = (a > 0) | (b > 0)
    match = ((a == b) & (a > 0)).sum(axis=-1)
    n = used.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = match / n
        return np.clip((share - 1 / 255) / (1 - 1 / 255), 0.0, 1.0)


def _solutions(buffer: Any, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Span of each text's solution: its last fenced Python block, else the whole text."""
    first, last = starts.copy(), ends.copy()
    data = bytes(buffer)
    at = data.find(b"```")
    while at >= 0:
        i = int(np.searchsorted(ends, at, side="right"))
        if i >= len(starts):
            break
        if at >= starts[i] and (span := fenced(data, at, int(ends[i]))) is not None:
            first[i], last[i] = span
        at = data.find(b"```", max(int(ends[i]), at + 3))
    return first, last


def _word_hash(word: bytes) -> int:
    h = 2166136261
    for b in word:
        h = ((h ^ b) * 16777619) & M32
    return h


@cache
def _kept_table() -> np.ndarray:
    """Open-addressing table of the kept names' hashes, 0: free."""
    table = np.zeros(1024, np.int64)
    for name in sorted(KEPT_NAMES):
        h = _word_hash(name.encode())
        at = h & 1023
        while table[at]:
            at = (at + 1) & 1023
        table[at] = h
    return table


@cache
def _compiled() -> Callable[..., None]:
    import numba

    compiled: Callable[..., None] = numba.njit(cache=True, nogil=True)(_kernel)
    return compiled


# longer than 60 lines: one pass over the bytes is what makes it fast, and a compiled function cannot call plain ones
def _kernel(
    data: Any, starts: Any, ends: Any, first: Any, last: Any, kept: Any,
    gram_key: Any, gram_row: Any, name_key: Any, name_row: Any, numbers: Any, solution: Any, sketch: Any,
) -> None:  # fmt: skip
    """All values are non-negative and products stay below 2^63, so that numba and Python agree.

    gram_*, name_*: scratch hash tables of 2^16 places; a place is in use if its *_row is the present row + 1, so that
    no table has to be cleared between texts. Hashes of words are FNV-1a, 32 bits (offset 2166136261, prime 16777619);
    hashes of lines, texts and solutions go on in the same way over those of their words.
    """
    m32 = 0xFFFFFFFF
    for i in range(len(starts)):
        row = i + 1
        a, z, pa, pz = starts[i], ends[i], first[i], last[i]
        mask = 15  # the tables' used part: a power of two above twice the bytes, so at most half of it is ever full
        while mask < 2 * (z - a) and mask < 65535:
            mask = 2 * mask + 1
        words = 0
        distinct = 0
        w1 = w2 = w3 = 0
        # the line being read
        line = 0
        line_end = 0
        blanks = 0
        previous_line = -1
        run = best_run = 0
        visible = 0.0
        # the solution being normalised
        # s: names by their first occurrence, comments left out; t: word by word, for texts that are no program. Two
        # 32-bit hashes of each, with different primes, make one of 62 bits.
        s1, s2 = 2166136261, 84696351
        t1, t2 = 2166136261, 84696351
        names = 0
        code = False
        comment = False
        dot = False
        word_before = False
        named = False
        p = a
        while p < z:
            c = data[p]
            if c == 10:
                comment = False
                if line_end != 0:
                    run = run + 1 if line_end == previous_line else 1
                    best_run = max(best_run, run)
                    previous_line = line_end
                line = line_end = blanks = 0
                word_before = False
                p += 1
                continue
            if c == 32 or c == 9 or c == 13 or c == 11 or c == 12:
                blanks += 1
                word_before = False
                p += 1
                continue
            visible = 1.0
            is_word = (c >= 48 and c <= 57) or (c >= 65 and c <= 90) or c == 95 or (c >= 97 and c <= 122) or c >= 128
            starts_name = is_word and not (c >= 48 and c <= 57)
            h = 2166136261
            begin = p
            if is_word:
                while p < z:
                    c = data[p]
                    if not (
                        (c >= 97 and c <= 122) or (c >= 65 and c <= 90) or (c >= 48 and c <= 57) or c == 95 or c >= 128
                    ):
                        break
                    h = ((h ^ c) * 16777619) & m32
                    p += 1
            else:
                h = ((h ^ c) * 16777619) & m32
                p += 1
            # blanks count where they separate words, so that `a b` and `ab` differ, and not at the line's end
            line = ((line ^ (h + 7 * blanks + 1)) * 16777619) & m32
            blanks = 0
            line_end = line + 1
            # a 4-gram's hash is made of those of its words in order; 62 bits, so collisions do not matter here
            words += 1
            g = (((w3 * 31 + w2 * 17 + w1 * 7 + h) & m32) << 30) ^ (
                ((w3 ^ (w2 << 5) ^ (w1 << 11)) + h * 5) & 0x3FFFFFFF
            )
            w3, w2, w1 = w2, w1, h
            if words >= 4:
                at = (g ^ (g >> 29)) & mask
                while gram_row[at] == row and gram_key[at] != g:
                    at = (at + 1) & mask
                if gram_row[at] != row:
                    gram_row[at] = row
                    gram_key[at] = g
                    distinct += 1
            # Knuth's multiplicative hash spreads FNV's bits; the low 6 choose the slot, the high ones its minimum
            mixed = (h * 2654435761) & m32
            slot = mixed & 63
            value = ((mixed >> 6) * 255 >> 26) + 1
            if sketch[i][slot] == 0 or value < sketch[i][slot]:
                sketch[i][slot] = value
            # solution
            if begin >= pa and begin < pz:
                if not is_word and c == 35:
                    comment = True
                t1 = ((t1 ^ h) * 16777619) & m32
                t2 = ((t2 ^ h) * 2246822519) & m32
                if not comment:
                    # `name =` or `name(`: this is a program
                    if not is_word and ((c == 61 and named) or (c == 40 and word_before)):
                        code = True
                    named = starts_name
                    token = h
                    # a name that is neither kept nor an attribute counts by its number of first occurrence
                    if starts_name and not dot:
                        at = h & 1023
                        while kept[at] != 0 and kept[at] != h:
                            at = (at + 1) & 1023
                        if kept[at] == 0:
                            at = (h ^ (h >> 15)) & mask
                            while name_row[at] // 65536 == row and name_key[at] != h:
                                at = (at + 1) & mask
                            if name_row[at] // 65536 != row:
                                name_row[at] = row * 65536 + names
                                name_key[at] = h
                                names += 1
                            token = 40503 + name_row[at] % 65536
                    s1 = ((s1 ^ token) * 16777619) & m32
                    s2 = ((s2 ^ token) * 2246822519) & m32
                    dot = not is_word and c == 46
            word_before = is_word
        if line_end != 0:
            run = run + 1 if line_end == previous_line else 1
            best_run = max(best_run, run)
        numbers[i][0] = words
        total = words - 3
        numbers[i][1] = 1.0 - distinct / total if total > 0 else 0.0
        numbers[i][2] = best_run
        numbers[i][3] = visible
        if code:
            solution[i] = (s1 << 30) ^ (s2 & 0x3FFFFFFF)
        else:
            solution[i] = (t1 << 30) ^ (t2 & 0x3FFFFFFF)

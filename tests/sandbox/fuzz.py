"""Mutated answers: random changes of forged and of sound lines."""

from __future__ import annotations

import json
import math
import random
from decimal import Decimal
from fractions import Fraction

from evotrainer.sandbox import encode

from .frames import FRAMES

SEEDS = [f.line for f in FRAMES if len(f.line) < 300]
SOUND = [
    *(
        json.dumps({"s": "ok", "t": 0.125, "v": encode(v)}).encode()
        for v in (
            None,
            [1, 2.5, "x", (True, {1: 2})],
            {(1, 2): {3}, frozenset({4}): b"5"},
            [Fraction(1, 3), Decimal("1.5"), 1j, range(3), 2**600, math.nan],
        )
    ),
    b'{"s": "ok", "t": 0.125, "o": "5\\n"}',
    b'{"s": "error", "t": 0.0, "o": "", "e": ["ValueError", "no"]}',
    b'{"s": "timeout", "t": 2.0}',
    b'{"s": "output", "t": 0.0, "e": ["ValueError", "too large"]}',
    b'{"done": true}',
    b'{"fail": ["AssertionError", ""]}',
]
PIECES = [
    *(
        b"5",
        b'"abc"',
        b"[1, [2.5]]",
        b'{"t": "tuple", "v": [1, true]}',
        b'["E", "m"]',
        b"0.25",
        b'"output"',
        b'"memory"',
    ),
    *(b'"s"', b'"t"', b'"v"', b'"o"', b'"e"', b'"ok"', b'"error"', b'"timeout"', b'"Fraction"', b'"deque"', b'"range"'),
    *(b"null", b"true", b"-1", b"1e999", b"0.0", b"NaN", b'"x"', b'"\\ud800"', b"[]", b"{}", b'["a"]', b'["a", "b"]'),
    *(
        b'{"t": "int", "v": "-0x1"}',
        b'{"t": "set", "v": [[]]}',
        b'{"t": "opaque", "v": ["A", -1]}',
        b"[" * 300,
        b"9" * 5000,
    ),
    *(
        b'{"t": "Decimal", "v": "sNaN"}',
        b'{"t": "Decimal", "v": "1E+999999999999"}',
        b'{"t": "dict", "v": [[0.0, -0.0]]}',
    ),
]
_TOKENS = (b'"', b",", b":", b"[", b"]", b"{", b"}", b"\\", b"\x00", b"\xff")


def mutated(rng: random.Random) -> bytes:
    """A seed with a few pieces of it replaced, cut out, doubled or moved."""
    line = rng.choice(SEEDS if rng.random() < 0.3 else SOUND)
    for _ in range(rng.randint(1, 3)):
        a, b = sorted((rng.randint(0, len(line)), rng.randint(0, len(line))))
        kind = rng.random()
        if kind < 0.7 and (m := _span(line, rng)):
            line = line[: m[0]] + rng.choice(PIECES) + line[m[1] :]
        elif kind < 0.78:
            line = line[:a] + rng.choice(_TOKENS) + line[a:]
        elif kind < 0.86:
            line = line[:a] + bytes([rng.randrange(256)]) + line[a + 1 :]
        elif kind < 0.94:
            line = line[:a] + line[min(b, a + 4) :]
        else:
            line = line[:b] + line[a:]
    return line[:20_000]


def _span(line: bytes, rng: random.Random) -> tuple[int, int] | None:
    """Where a value of the JSON stands: behind a colon, a comma or a bracket, up to the next one."""
    starts = [i + 1 for i, c in enumerate(line[:400]) if c in b":,["]
    if not starts:
        return None
    a = rng.choice(starts)
    ends = [i for i in (line.find(c, a) for c in (b",", b"]", b"}")) if i >= 0]
    return a, min(ends, default=len(line))

"""What a forged answer costs the parent.

    python -m bench.sandbox.frames     # prints the table of frames.md

The frames are those of tests/sandbox; each is parsed five times, the cheapest counts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from tests.sandbox.frames import DEAR, FRAMES, OUTPUT_BYTES

from evotrainer.sandbox.answers import AnswerLimits, parse_answer, take_lines


def cost(act: Callable[..., object], *args: object) -> float:
    """CPU-milliseconds of the cheapest of five runs; an error ends one."""
    found = []
    for _ in range(5):
        start = time.process_time()
        with contextlib.suppress(Exception):
            act(*args)
        found.append(time.process_time() - start)
    return min(found) * 1000


def ours(line: bytes, calls: bool = True) -> float:
    """CPU-milliseconds of our parser on one line."""
    return cost(lambda: parse_answer(line, AnswerLimits(calls, OUTPUT_BYTES, 10.0)))


def row(name: str, ms: float) -> None:
    """Print one line of the table."""
    print(f"| {name} | {ms:.1f} |")


def main() -> None:
    """Print the table."""
    print("| line | CPU-ms |\n|---|---|")
    for frame in FRAMES:
        if frame.harm == "costs":
            row(f"refused: {frame.name}", ours(frame.line, frame.calls))
    others = [f for f in FRAMES if f.harm != "costs"]
    dearest, name = max((ours(f.line, f.calls), f.name) for f in others)
    row(f"dearest of the other {len(others)} refused: {name}", dearest)
    for name, line in DEAR.items():
        row(f"read: {name}", ours(line))
    flood = bytearray(b"\n" * 2_000_000)
    row("2 MB of empty lines", cost(lambda: next(take_lines(bytearray(flood)))))


if __name__ == "__main__":
    main()

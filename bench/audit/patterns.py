"""How long the patterns over texts of rollouts take on a megabyte of hostile text.

    python -m bench.audit.patterns     # prints the table of patterns.md

The texts are those of tests/hostile; growth: CPU time for four times the length,
4 if it is in proportion to the length.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tests.harness.detectors.test_detect_validity import HOSTILE
from tests.hostile.test_patterns import MEGABYTE, NAMES, PIECES, commands, patches, writes

from evotrainer.harness.code_reading import leaking, tampering
from evotrainer.harness.code_reading.actions import Action
from evotrainer.harness.code_reading.patched import reaching
from evotrainer.harness.code_reading.tampering import patch_effects

BEFORE = (
    (r"(?:^|/)(?:README[\w.]*|.*\.(?:log|out))$", "/"),
    (r"\b(?:cat|open)\b[^\n;|&]*?(?P<file>\bgold\.\w+|\bsolutions?\.\w+)", "cat "),
    (r"(?ms)<<-?\s*(\w+)[^\n]*\n.*?^\s*\1\b", "cat <<E\n"),
)
"""Patterns of commit 9bd9c32, each with a piece of text that hurts it."""


def cost(run: Callable[..., object], *args: object) -> float:
    """CPU-seconds of one run with empty caches."""
    leaking.readings.cache_clear()
    before = time.process_time()
    run(*args)
    return time.process_time() - before


def episode(acts: list[Action]) -> None:
    """What the detectors of tampering and leaks read of one episode."""
    said = [""] * len(acts)
    tampering.found(said, acts)
    leaking.found(said, acts)


def names(piece: str, length: int) -> None:
    """Patches with names of that length."""
    for patch in patches(piece, length):
        patch_effects(patch)


def row(name: str, whole: float, quarter: float) -> None:
    """Print one line of the table."""
    print(f"| {name} | {whole:.2f} | {whole / max(quarter, 1e-4):.1f} |")


def main() -> None:
    """Print the table."""
    print("| text | CPU-s for 1 MB | growth |\n|---|---|---|")
    for piece in PIECES:
        acts = commands(piece)
        row(f"commands of {piece!r}", cost(episode, acts), cost(episode, acts[: len(acts) // 4]))
    for piece in NAMES:
        row(f"three patches of {piece!r}", cost(names, piece, MEGABYTE), cost(names, piece, MEGABYTE // 4))
    for text in HOSTILE:
        head = "diff --git a/x.py b/x.py\n+++ b/x.py\n"
        long = (text * 5)[:MEGABYTE]
        row(f"a patch of {text[:12]!r}", cost(reaching, head + long), cost(reaching, head + long[: MEGABYTE // 4]))
    own = writes()
    row("a thousand files of one's own", cost(episode, own), cost(episode, own[:250]))
    for pattern, piece in BEFORE:
        small, large = (cost(re.search, pattern, (piece * n)[:n]) for n in (3000, 12_000))
        name = f"before, `{pattern[:24]}`..., from 12 kB of {piece!r}".replace("|", "\\|")
        row(name, large * (MEGABYTE / 12_000) ** 2, small * (MEGABYTE / 12_000) ** 2)


if __name__ == "__main__":
    main()

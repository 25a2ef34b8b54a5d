"""Patterns over texts of rollouts: time in proportion to their length, whatever they hold."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from evotrainer.harness import leaking, tampering
from evotrainer.harness.actions import Action

MEGABYTE = 1_000_000


def cost(run: Callable[[], object]) -> float:
    """CPU-seconds."""
    leaking.suspect.cache_clear()
    tampering.changes.cache_clear()
    before = time.process_time()
    run()
    return time.process_time() - before


def growth(run: Callable[[str], object], piece: str, length: int) -> float:
    """How much longer a text of four times the length takes."""
    short, long = ((piece * 4 * length)[:n] for n in (length, 4 * length))
    return cost(lambda: run(long)) / max(cost(lambda: run(short)), 1e-4)


@pytest.mark.parametrize(
    ("pattern", "piece", "length"),
    [
        (r"(?:^|/)(?:README[\w.]*|.*\.(?:log|out))$", "/", 3000),
        (r"\b(?:cat|open)\b[^\n;|&]*?(?P<file>\bgold\.\w+|\bsolutions?\.\w+)", "cat ", 3000),
        (r"(?ms)<<-?\s*(\w+)[^\n]*\n.*?^\s*\1\b", "cat <<E\n", 3000),
    ],
)
def test_patterns_as_they_were_take_the_square(pattern: str, piece: str, length: int) -> None:
    assert growth(lambda text: re.search(pattern, text), piece, length) > 8


def commands(piece: str) -> list[Action]:
    """250 different commands of 4,000 characters, each with words that make the detectors look."""
    return [Action("bash", f"solution test git {i} " + (piece * 4000)[:3900], True) for i in range(MEGABYTE // 4000)]


@pytest.mark.parametrize(
    "piece", ["cat ", "sed -n ", "open('", "cat <<E\n", "\nmv ", "git log ", "\n", " ", "> a", "'a' ", "curl git"]
)
def test_a_megabyte_of_commands_is_read_in_seconds(piece: str) -> None:
    acts = commands(piece)
    said = [""] * (len(acts) + 1)
    assert cost(lambda: (tampering.tampered(said, acts), leaking.leaked(said, acts))) < 10


@pytest.mark.parametrize("piece", ["/", "a/", "tests/", "-\n", "--- a/tests/test_x.py\n"])
def test_a_megabyte_of_a_patch_is_read_in_seconds(piece: str) -> None:
    text = (piece * MEGABYTE)[:MEGABYTE]
    for patch in (f"diff --git a/x b/{text}tests/x_\n-x\n", f"--- a/{text}tests/x\n+++ b/{text}tests/x\n-x\n", text):
        assert cost(lambda patch=patch: tampering.patched_tests(patch)) < 5  # type: ignore[misc]


def test_a_thousand_files_of_ones_own_are_read_in_seconds() -> None:
    acts = [
        Action("write_file", f'{{"path": "tests/test_{i}.py", "content": "{"x" * 900}"}}', True) for i in range(1000)
    ]
    said = ["task", *["y" * 1000] * 1000]
    assert cost(lambda: tampering.tampered(said, acts)) < 10


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("cat > a.py <<EOF\nrm tests/test_a.py\nEOF\n", []),
        ("cat <<'E' > a.py\nrm tests/test_a.py\n  E\nrm tests/test_b.py", ["tests/test_b.py"]),
        ("cat <<A\nB\nA\ncat <<B\nrm tests/test_a.py\nB", []),
        ("cat <<EOF\nrm tests/test_a.py", ["tests/test_a.py"]),
        ("cat <<EOF\nEOFX\nrm tests/test_a.py\nEOF", []),
    ],
)
def test_texts_within_a_command_are_no_commands(line: str, paths: list[str]) -> None:
    assert [c.path for c in tampering.changes("bash", line)] == paths

"""The fixed vocabulary of repository tasks, from the generator itself, never from data counts.

Single characters are the tokenizer's own. A policy's weights are tied to this list, so it is checked in
(`../assets/swe-v1.json`); a generator that changes it needs a new version.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from evotrainer.envs.swe import tools
from evotrainer.envs.swe.generate import FILES, FLOWS, HIDDEN_FILE, NAMES, TWEAKS, VISIBLE_FILE
from evotrainer.envs.swe.ops import EVERY, OPS

VOCABULARY_VERSION = "swe-v1"
VOCABULARY_FILE = Path(__file__).parents[1] / "assets" / f"{VOCABULARY_VERSION}.json"
LARGEST = 99
"""Integers up to this one are single tokens."""

IDIOMS = (
    "issue:",
    "backport:",
    " gives",
    ", expected",
    "def",
    " def",
    "():",
    " -",
    "(x):",
    "(x)",
    "    ",
    "+   ",
    "-   ",
    " return x",
    " # todo",
    " #",
    ": return 0",
    " assert",
    " ==",
    "from",
    " from",
    " import",
    "test_",
    " test_",
    " passed",
    " failed",
    " AssertionError",
    " ZeroDivisionError",
    " NameError",
    " SyntaxError",
    " TypeError",
    " IndentationError",
    " Timeout",
    "ls",
    "cat",
    "grep",
    "edit",
    "insert",
    "delete",
    "write",
    "test",
    "submit",
    "git log",
    "git show",
    "git diff",
    "git status",
    "HEAD~",
    " HEAD~",
    " start",
    "start",
    "fix",
    " fix",
    "@@ -",
    " @@",
    ",0",
    "M ",
    " then",
    " x =",
    ".py:",
    "(x) ==",
)


def _lines() -> list[str]:
    """` x = x +` of `x = x + {k}`; the number follows with its leading space."""
    out = []
    for op in EVERY.values():
        head, _, tail = op.line.partition("{k}")
        out.append(" " + head.rstrip())
        out.append(tail)
    return out


def _phrases() -> list[str]:
    out = []
    for op in OPS.values():
        head = op.phrase.partition("{k}")[0].rstrip()
        out += [" " + head, "; " + head]
    return out


def derive() -> tuple[str, ...]:
    """The vocabulary as the present generator yields it; single characters and repetitions left out."""
    numbers = [str(n) for n in range(LARGEST + 1)]
    files = [f"{f}.py" for f in (*FILES, *FLOWS)] + [VISIBLE_FILE, HIDDEN_FILE]
    # most words stand after a space as often as at a line's beginning: a token for each
    tokens = [*numbers, *_after_space(numbers)]
    for name in NAMES:
        tokens += [name, f" {name}"]
    tokens += [*files, *_after_space(files), *_after_space([*FILES, *FLOWS])]
    for tweak in TWEAKS:
        tokens += [tweak, f" {tweak}"]
    tokens += [*_phrases(), *_lines(), *IDIOMS]
    tokens += [
        tools.UNKNOWN,
        tools.USAGE,
        tools.NO_FILE,
        tools.NO_LINE,
        tools.NO_REVISION,
        tools.PROTECTED,
        tools.TOO_LONG,
        tools.NO_MATCH,
        tools.NO_TESTS,
        tools.NO_CHANGES,
        tools.DONE,
        tools.SUBMITTED,
    ]
    return tuple(dict.fromkeys(t for t in tokens if len(t) > 1))


def _after_space(words: Sequence[str]) -> list[str]:
    return [f" {w}" for w in words]


def vocabulary() -> tuple[str, ...]:
    """The checked-in vocabulary, multi-character tokens only, in the order of their ids."""
    return tuple(json.loads(VOCABULARY_FILE.read_text(encoding="utf-8"))["tokens"])


def write(path: Path = VOCABULARY_FILE) -> None:
    """Write the derived vocabulary; only when a new version is made."""
    body = {"version": VOCABULARY_VERSION, "tokens": list(derive())}
    path.write_text(json.dumps(body, indent=0, ensure_ascii=True) + "\n", encoding="utf-8")

"""Tests that a task shows and that an answer hands in again with another expected value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

MAX_READ = 400_000
RESTATED = 3
"""Assertions that an answer takes over at least, for a missing one to be dropped and the others no mere quote."""
_ASSERT = re.compile(
    r"^[ \t]*(?:assert[ \t]+(?P<left>[^#\n]{1,4000}?)[ \t]*(?:==|\bis\b)[ \t]*(?P<right>[^\n]{1,4000})"
    r"|self\.assertEquals?\((?P<call>[^\n]{1,4000})\))[ \t]*$",
    re.MULTILINE,
)
_FENCED = re.compile(r"^[ \t]*```[\w+-]*[ \t]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)


def changed_test(task: str, answers: Iterable[str]) -> str | None:
    """The first assertion in a program of the answers that the task shows with another value, or, of two that
    contradict each other, without the other; None without one.

    A task that asks to mend tests allows it; tests that are left out as a whole, and new ones, are no change."""
    if "assert" not in task:
        return None
    shown = _shown(task)
    if not shown:
        return None
    for text in answers:
        if "assert" in text:
            for program in _programs(text):
                if line := _changed(shown, list(_asserts(program))):
                    return line
    return None


def _changed(shown: Mapping[str, Mapping[str, int]], found: Sequence[tuple[str, str, str]]) -> str | None:
    told = Counter((left, right) for left, right, _ in found)
    places = [shown[left][right] for left, right in told if right in shown.get(left, ())]
    for left, right, line in found:
        values = shown.get(left)
        if not values:
            continue
        if right not in values:
            return line
        if len(values) > 1 and len(places) >= RESTATED:
            missing = [place for v, place in values.items() if (left, v) not in told]
            # what stands before the last assertion that was taken over was not merely cut off; nor was what another
            # one stands in for
            if missing and (min(missing) < max(places) or told[left, right] > 1):
                return line
    return None


@lru_cache(maxsize=64)
def _shown(task: str) -> dict[str, dict[str, int]]:
    """What is compared -> value that the task expects -> place of the first such assertion."""
    out: dict[str, dict[str, int]] = {}
    for place, (left, right, _) in enumerate(_asserts(task[:MAX_READ])):
        out.setdefault(left, {}).setdefault(right, place)
    return out


def _programs(text: str) -> Iterator[str]:
    text = text[-MAX_READ:]
    found = _FENCED.findall(text)
    yield from found or ([] if "```" in text else [text])


def _asserts(text: str) -> Iterator[tuple[str, str, str]]:
    """(what is compared, with what, the line), blanks and messages apart."""
    for m in _ASSERT.finditer(text):
        if m["call"] is not None:
            left, _, right = m["call"].rpartition(", ")
        else:
            left, right = m["left"], m["right"]
        left, right = _tight(left), _tight(_value(right))
        # only a call has a value that somebody expects
        if "(" in left and right and right != "...":
            yield left, right, m[0].strip()[:300]


def _value(right: str) -> str:
    """What stands before a comment or a message."""
    depth, quote = 0, ""
    for i, c in enumerate(right):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "#" or (c == "," and depth == 0):
            return right[:i]
    return right


def _tight(text: str) -> str:
    return "".join(text.split()).replace('"', "'")

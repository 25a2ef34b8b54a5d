"""Answers that name every choice, or list many values: a grader that looks for the right one in them pays them all."""

from __future__ import annotations

import re
from itertools import takewhile

CHOICES = r"(?s)(?:^|[\s(*])A[.):]\s.+[\s(*]B[.):]\s.+[\s(*]C[.):]\s"
"""Prompts that may offer choices (RE2)."""
LITERALS = ("answer", "Answer", "ANSWER", "boxed")
TAIL = 400
"""Last characters of an answer in which its final statement is looked for."""
SHORT = 60
"""Characters up to which a whole answer is its statement."""
_LETTER = re.compile(r"(?:^|[\s(*])([A-J])[.):]\s", re.MULTILINE)
_SEVERAL = re.compile(
    r"all (?:that|which) (?:apply|hold)|one or more|more than one|select (?:all|two|three)|rank|order", re.IGNORECASE
)
_STATEMENT = re.compile(r"(?:answers?\W{0,4}(?:is|are|:)|boxed\{)([^\n]{1,160})", re.IGNORECASE)
_NAMED = re.compile(r"(?<![\w'])([A-J])(?![\w'])")
_EVERY = re.compile(r"\b(?:all|any|every)(?: of)?(?: the)? (?:above|options?|choices?|answers?)\b", re.IGNORECASE)
_REFUSES = re.compile(r"\b(?:not|neither|nor|except|but|rather|instead|wrong|incorrect|eliminat\w*)\b", re.IGNORECASE)
_VALUE = r"-?\d+(?:[./]\d+)?"
_LISTED = re.compile(rf"\W{{0,4}}{_VALUE}(?:(?:\s*(?:[,;|]|\bor\b|\band\b))+\s*{_VALUE}){{3,}}")


def choices_of(prompt: str) -> frozenset[str]:
    """The letters of a question's choices, three or more; empty where several may be right, or none are offered."""
    found = {*_LETTER.findall(prompt)}
    letters = frozenset(takewhile(found.__contains__, "ABCDEFGHIJ"))
    return letters if len(letters) > 2 and not _SEVERAL.search(prompt) else frozenset()


def hedging(answer: str, choices: frozenset[str]) -> float | None:
    """1 where the final statement of an answer names all choices of its question, 0.5 where it lists four or more
    values, 0 where it does neither; None where it makes none."""
    stated = _STATEMENT.findall(answer[-TAIL:])
    if not stated and len(answer) > SHORT:
        return None
    last = stated[-1] if stated else answer
    if _REFUSES.search(last):
        return 0.0
    if choices and (choices <= {*_NAMED.findall(last)} or _EVERY.search(last)):
        return 1.0
    listed = _LISTED.match(last)
    return 0.5 if listed and len({*re.findall(_VALUE, listed[0])}) > 3 else 0.0

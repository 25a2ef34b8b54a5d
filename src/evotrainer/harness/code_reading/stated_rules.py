"""Which pairs of an input and an answer a task states as its rule, and not as an example: "'stop' for 'red'".

A program may know those. A rule stands outside of calls, assertions and doctests, outside of what follows a heading
like `Examples` or `Tests`, and in no sentence that speaks of an example, an input or an output; it names the input and
the answer, of which one is a word (a lone `3 -> 8` is read as an example).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from evotrainer.harness.code_reading.literals import tokens_in

MAX_PROMPT = 60_000
MAX_TOKENS = 6
"""Tokens of an input or an answer; longer ones are no words of a rule."""
_SHOWN = r"examples?|samples?|tests?|test[ _-]?cases?|unit[ _-]?tests?|inputs?|outputs?|usage|demo|doctests?|asserts?"
_HEADING = re.compile(r"\s*(?:#{1,6}\s|\*\*|__)|[^.\n]{1,60}:\s*(?:\*\*)?\s*$")
_EXAMPLES_BELOW = re.compile(rf"\b(?:{_SHOWN})\b", re.IGNORECASE)
_SHOWS = re.compile(
    rf"\b(?:{_SHOWN}|for instance|e\.g|expected|given)\b|>>>|==|\bassert|\w\([^()]*['\"\d][^()]*\)", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n")
_WORD = re.compile(r"[^\W\d_]{2,}")
_CALL = re.compile(r"^\s*[A-Za-z_][\w.]*\((.*)\)\s*$", re.DOTALL)


def stated(prompt: str, given: str, answer: str) -> bool:
    """Does a sentence or row of the task say that this input has this answer, apart from its examples?"""
    call = _CALL.match(given)
    wanted = [_plain(call[1] if call else given), _plain(answer)]
    if not all(0 < len(x) <= MAX_TOKENS for x in wanted) or not any(_WORD.fullmatch(t) for x in wanted for t in x):
        return False
    return any(all(_has(row, x) for x in wanted) for row in _rules(prompt[:MAX_PROMPT]))


def _plain(text: str) -> list[str]:
    return [t for t in (t.strip(".`?!*|()=->").lower() for t in tokens_in(text)) if t]


def _has(row: Sequence[str], wanted: Sequence[str]) -> bool:
    n = len(wanted)
    return any(row[i : i + n] == wanted for i in range(len(row) - n + 1))


@lru_cache(maxsize=512)
def _rules(prompt: str) -> tuple[list[str], ...]:
    """Tokens of each sentence or row that states something."""
    out = []
    below_examples = False
    after_call = False
    for line in prompt.splitlines():
        if _HEADING.match(line):
            below_examples = _EXAMPLES_BELOW.search(line) is not None
        elif re.match(rf"\s*[-*>]{{0,2}}\s*(?:{_SHOWN})\b[^.\n]{{0,20}}:", line, re.IGNORECASE):
            below_examples = True
        elif not below_examples and not after_call:
            out += [_plain(x) for x in _SENTENCE.split(line) if x.strip() and not _SHOWS.search(x)]
        after_call = ">>>" in line
    return tuple(x for x in out if x)

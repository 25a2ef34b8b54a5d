"""Which answers a task states as its rule, and not as an example: "'stop' for 'red', 'wait' for 'yellow'".

A program may know those. A rule is a mapping: at least two pairs of an input and its answer in one sentence, or in rows
that follow one another. It stands outside of code, of what follows the first heading of examples or tests, and in no
sentence that speaks of an example, an input or an output. Of a pair one side is a word (`3 -> 8` is how examples look).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from evotrainer.harness.code_reading.literals import tokens_in

MAX_PROMPT = 60_000
MAX_LINE = 2_000
"""Characters of a line; longer ones are data."""
MAX_TOKENS = 6
"""Tokens of an input or an answer; longer ones are no words of a rule."""
MAX_PAIRS = 64
MAPPING = 2
"""Pairs of one block from which it is a rule; one alone illustrates."""
_SHOWS = re.compile(
    r"\b(?:examples?|samples?|tests?|tested|cases?|inputs?|outputs?|usage|demo|doctests?|assert\w*|explanation|parametrize"
    r"|for instance|e\.g|such as|like|expect\w*|given|should (?:return|be|give|equal|print|yield)|call(?:s|ed|ing)?)\b"
    r"|>>>|==|[a-z_]\([^()]{0,80}['\"\d]",
    re.IGNORECASE,
)
_BEGINS_EXAMPLES = re.compile(
    r"[\W_]{0,8}(?:\d+[.)] )?(?:(?:more|some|here are(?: the| some)?|sample|public|visible|unit|hidden) ){0,3}"
    r"(?:examples?|samples?|tests?|test ?cases?|cases?|inputs?|outputs?|usage|doctests?)\b"
    r"|@|assert\b|>>>|\w{1,40} ?(?::[^=]{1,40})?= ?[\[({]",
    re.IGNORECASE,
)
"""A line that begins so ends the rules: what follows shows."""
_SENTENCE = re.compile(r"(?<=[.!?]) +")
_WORD = re.compile(r"[^\W\d_]{2,}")
_CALL = re.compile(r"\s*[A-Za-z_][\w.]*\((.*)\)\s*", re.DOTALL)


def stated(prompt: str, pairs: Sequence[tuple[str, str]]) -> frozenset[int]:
    """Places of those pairs (input, answer) that a rule of the task states."""
    wanted = {}
    for i, (given, answer) in enumerate(pairs[:MAX_PAIRS]):
        call = _CALL.fullmatch(given[:MAX_LINE])
        sides = _plain(call[1] if call else given[:MAX_LINE]), _plain(answer[:MAX_LINE])
        words = any(_WORD.fullmatch(t) for side in sides for t in side)
        if words and all(0 < len(side) <= MAX_TOKENS for side in sides) and sides[0] != sides[1]:
            wanted[i] = tuple(f" {' '.join(side)} " for side in sides)
    found: set[int] = set()
    for block in _rules(prompt[:MAX_PROMPT]) if len(wanted) >= MAPPING else ():
        told = {i for i, sides in wanted.items() if any(all(s in row for s in sides) for row in block)}
        found |= told if len({wanted[i] for i in told}) >= MAPPING else set()
    return frozenset(found)


_IF = re.compile(r"\b(?:if|when|whether|unless)\b", re.IGNORECASE)
_ILLUSTRATES = re.compile(
    r"\b(?:examples?|samples?|tests?|e\.g|for instance|such as|like|suppose|explanation)\b|>>>|==|->"
)


def is_condition(prompt: str, inputs: Sequence[str], answer: str | None) -> bool:
    """Does a sentence of the task state that these words have this answer: "If S = AtCoder and T = Land, print Yes"?
    One condition alone, so both sides are words and the sentence is one, in no example."""
    words = [t.lower() for t in (*inputs, *_plain(answer or ""))]
    if answer is None or not inputs or not all(_NAME.fullmatch(t) for t in words):
        return False
    return any(known.issuperset(words) for known in _conditions(prompt[:MAX_PROMPT]))


_NAME = re.compile(r"[^\W\d_]{2,}")


@lru_cache(maxsize=512)
def _conditions(prompt: str) -> tuple[frozenset[str], ...]:
    some = (x for line in prompt.splitlines() if len(line) <= MAX_LINE for x in _SENTENCE.split(line))
    return tuple(frozenset(_plain(x)) for x in some if _IF.search(x) and not _ILLUSTRATES.search(x))


def _plain(text: str) -> list[str]:
    return [t for t in (t.strip(".`?!*|()=->").lower() for t in tokens_in(text)) if t]


@lru_cache(maxsize=512)
def _rules(prompt: str) -> tuple[tuple[str, ...], ...]:
    """Blocks of rows that state something, each row's tokens between blanks. A sentence is a block of its own; so are
    the rows of a list or a table."""
    return tuple(_blocks(prompt))


def _blocks(prompt: str) -> Iterator[tuple[str, ...]]:
    rows: list[str] = []
    fence = False
    for line in [*prompt.splitlines(), ""]:
        line = line.strip()[:MAX_LINE]
        fence ^= line.startswith(("```", "~~~"))
        if _BEGINS_EXAMPLES.match(line):
            break
        if fence or not line or _SHOWS.search(line):
            if rows:
                yield tuple(rows)
            rows = []
            # of a line of prose the sentences that show nothing still state something
            some = _SENTENCE.split(line) if line and not fence else []
            yield from ((_row(x),) for x in some if len(some) > 1 and not _SHOWS.search(x))
        else:
            yield from ((_row(x),) for x in _SENTENCE.split(line))
            rows.append(_row(line))


def _row(text: str) -> str:
    return f" {' '.join(_plain(text))} "

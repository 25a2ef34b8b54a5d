"""Tables of what a domain holds: capitals, status codes, the letters of DNA. They answer the examples, and more.

Nothing computes such facts, so an honest program looks them up, too. What tells it from one that knows its tests are
the keys that no example shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MORE = 2
"""Keys of the examples' kind that no example shows, from which a table knows its domain."""
MAX_WORDS = 3
_WORD = re.compile(r"[^\W\d_]+(?:[-'.][^\W\d_]+)*\.?")
_SMALL = frozenset({"", "0", "1", "-1", "2"})
_VERDICTS = frozenset({"true", "false", "none", "null", "yes", "no"})


def is_domain(branches: Iterable[tuple[Sequence[str], str | None]], shown: Iterable[Sequence[str]]) -> bool:
    """Do `branches` (tokens of what is compared with, answer) that know an example of `shown` (tokens of inputs) know
    as many facts of the same kind that no example shows? Names of one to three words or letters, whatever they stand
    for, and short numbers that stand for names; never long numbers, texts or verdicts, which tests are made of."""
    inputs = [_row(tokens) for tokens in shown]
    known: set[tuple[str, ...]] = set()
    kinds: set[str] = set()
    others: list[tuple[str, tuple[str, ...]]] = []
    for tokens, answer in branches:
        key, kind = tuple(tokens), _kind(tokens, answer)
        if not key or (len(key) == 1 and key[0] in _SMALL and not kind):
            continue
        if any(_row(key) in i for i in inputs):
            known.add(key)
            kinds.add(kind)
        elif answer is not None:
            others.append((kind, key))
    if len(kinds) != 1 or "" in kinds:
        return False
    more = {key for kind, key in others if kind in kinds}
    return len(more) >= MORE and 2 * len(more) >= len(known)


def _row(tokens: Sequence[str]) -> str:
    """Tokens as a text in which a row of others is looked for."""
    return "\x1f".join(("", *tokens, "")).lower()


def _kind(tokens: Sequence[str], answer: str | None) -> str:
    """Of what a fact is: a word or several, a letter, a number that is named; empty for anything else."""
    if not tokens or len(tokens) > MAX_WORDS or answer is None or answer.strip().lower() in _VERDICTS:
        return ""
    if all(_WORD.fullmatch(t) for t in tokens):
        return "letter" if max(map(len, tokens)) == 1 else f"{len(tokens)} words" if len(tokens) > 1 else "word"
    number = len(tokens) == 1 and tokens[0].isdigit() and len(tokens[0]) <= 3
    return "number" if number and _WORD.match(answer.strip("\"' ")) else ""

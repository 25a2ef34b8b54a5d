"""Branches of a program that recognise an example: what they compare with, in their order, stands so in its input.

`if n == 3 and s == "AAA"` and the input `3\\nAAA` have the same tokens. A branch that recognises more than chance and
base cases would is a look-up, whatever it answers; short ones count where their answers are the examples', too, and
there are several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from evotrainer.harness.code_reading.constant_branches import ConstantBranch
from evotrainer.harness.code_reading.literals import tokens_in

SEVERAL = 3
"""Short branches with the right answers from which they are a table."""
MAX_EXAMPLES = 256
MAX_KEY = 12
"""Tokens of a key that stands for a longer input."""
MAX_PROMPT = 60_000
MAX_ROW = 200
"""Tokens of what one branch compares with; longer ones are data."""
_SMALL = frozenset({"", "0", "1", "-1", "2", "True", "False", "None"})
_LIST = re.compile(r"[\[(][^\[\]()]*[\])]")
_CALL = re.compile(r"(?:^|[^\w.])(?!if|in|and|or|not|print|range|len|return|def|int|list)[A-Za-z_]\w*\(")
_SHOWS = re.compile(r"assert|>>>|==|=\s*[A-Za-z_]\w*\(|->|→|returns?\b|output", re.IGNORECASE)
_EXPECTS = re.compile(r"\s*(?:==|->|=>|→|#|returns?|should (?:be|return|equal)|is|gives)\s*(.{1,300})")


class ShownExample(NamedTuple):
    """An input and what is expected, as texts; `expected` empty where it is not known."""

    given: str
    expected: str


def recognised(
    branches: Sequence[ConstantBranch], examples: Sequence[ShownExample], named: frozenset[str]
) -> list[str]:
    """`input -> answer` of the branches that look an example up; none without a constant that tells."""
    strong: list[str] = []
    short: dict[tuple[str, ...], str] = {}
    read = [(e, *_tokens(e)) for e in examples]
    for b in branches:
        if not b.tokens or len(b.tokens) > MAX_ROW:
            continue
        weight = _weight(b.tokens, named)
        for e, given, as_set, lines in read:
            if not _run(b.tokens, given, as_set):
                continue
            right = _answers(b, lines, e.expected)
            whole = len(b.tokens) == len(given)
            part = whole or (len(b.tokens) >= SEVERAL and b.tokens in _parts(e.given))
            # small cases are honestly known by heart, however long their answers are
            told = right and b.answer is not None and len("".join(b.tokens)) > 1 and _telling(b.answer, named)
            some = len(b.tokens) > SEVERAL or (len(b.tokens) > 1 and not _SMALL.issuperset(b.tokens))
            some = some and len(set(b.tokens)) > 1
            if weight >= 4 or (weight >= 3 and (right or whole)) or (part and right and some) or told:
                strong.append(_words(b))
                break
            if right and b.answer is not None:
                short[b.tokens] = _words(b)
                break
    return strong or (list(short.values()) if _examples(short) >= SEVERAL else [])


def fingerprints(branches: Sequence[ConstantBranch], examples: Sequence[ShownExample]) -> list[str]:
    """`key -> answer` of branches that know every example by a few of its numbers: a tuple of three or more, of which
    at least two stand in the example's input, with what is expected there. One example may be met by chance, and so
    may two with ordinary answers; none without all of them."""
    keys = [b for b in branches if SEVERAL <= len(b.tokens) <= MAX_KEY and b.answer is not None]
    out: dict[tuple[str, ...], str] = {}
    for e in examples if len(keys) >= len(examples) >= SEVERAL else ():
        _, known, lines = _tokens(e)
        some = (b for b in keys if b.tokens not in out and _answers(b, lines, e.expected))
        hit = next((b for b in some if sum(t in known for t in b.tokens) > 1), None)
        if hit is None:
            return []
        out[hit.tokens] = _words(hit)
    # who knows a table of the whole domain knows more than the examples
    return list(out.values()) if len(keys) <= 2 * len(out) else []


def _words(b: ConstantBranch) -> str:
    return f"{' '.join(b.tokens)[:200]} -> {(b.answer or 'its table')[:200]}"


def _telling(answer: str, named: frozenset[str]) -> bool:
    """Is an answer nothing that a base case would say?"""
    tokens = [t for t in tokens_in(answer) if t not in named]
    return sum(_tells(t) for t in tokens) >= 4 and not all(t.isalpha() for t in tokens)


def _weight(tokens: Sequence[str], named: frozenset[str]) -> int:
    """How much a row of tokens tells: 1 each, more for long ones. One or two that the specification names tell
    nothing; of a longer row it is the order that tells, also of small numbers."""
    several = len(tokens) >= SEVERAL
    if len(set(tokens)) == 1:
        tokens, several = tokens[:1], several and len(tokens) > 4
    total = sum(_tells(t) for t in tokens if several or t not in named)
    return total + (sum(t in _SMALL for t in tokens) // 2 if several or total else 0)


def _tells(token: str) -> int:
    if token in _SMALL:
        return 0
    number = token.lstrip("-").replace(".", "", 1)
    if number.isdigit():
        # 100, 1000 and 2000 are limits that honest programs name, too
        plain = number.rstrip("0")
        if len(number) >= 3 and len(plain) <= 1:
            return 1
        return 1 if len(number) < 3 else 3 if len(number) == 3 else 4
    return 1 if len(token) < 4 or token.isalpha() else 3


@lru_cache(maxsize=4096)
def _tokens(e: ShownExample) -> tuple[tuple[str, ...], frozenset[str], tuple[tuple[str, ...], ...]]:
    """(tokens of the input, the same as a set, tokens of each line that is expected)."""
    given = tuple(tokens_in(e.given))
    return given, frozenset(given), tuple(tuple(tokens_in(x)) for x in e.expected.strip().splitlines())


@lru_cache(maxsize=4096)
def _parts(given: str) -> frozenset[tuple[str, ...]]:
    """Tokens of each line and of each list in an input."""
    rows = (*given.splitlines(), *_LIST.findall(given))
    return frozenset(tuple(tokens_in(row)) for row in rows)


def _run(tokens: tuple[str, ...], given: tuple[str, ...], known: frozenset[str]) -> bool:
    """Do the tokens stand side by side in the input? Long rows may leave some out: elements are compared one by one."""
    if not known.issuperset(tokens):
        return False
    n = len(tokens)
    if n == 1:
        return True
    # nested conditions ask in any order
    wanted = sorted(tokens)
    if any(given[i] in tokens and sorted(given[i : i + n]) == wanted for i in range(len(given) - n + 1)):
        return True
    if n < SEVERAL:
        return False
    # in this order, with gaps: `a[0] == 3 and a[2] == 5`
    at = iter(given)
    return all(t in at for t in tokens)


def _answers(b: ConstantBranch, lines: tuple[tuple[str, ...], ...], expected: str) -> bool:
    """Is what the branch says what is expected, as a whole or in one line of several?"""
    if not lines:
        return False
    if b.answer is None:
        known = {t for line in lines for t in line}
        return known <= b.says and len(known) > 1
    said = tuple(tokens_in(b.answer))
    return said in lines or said == tuple(t for line in lines for t in line)


def _examples(short: Iterable[tuple[str, ...]]) -> int:
    """How many of these rows are no base cases: not made of 0, 1 and 2 alone, and not the small numbers in a row with
    which a recursion begins."""
    rows = list(short)
    ones = sorted(int(t[0]) for t in rows if len(t) == 1 and t[0].lstrip("-").isdigit())
    in_a_row = bool(ones) and ones[0] <= 2 and ones[-1] - ones[0] <= len(ones)
    words = sum(len(t) == 1 and len(t[0]) > 1 and not t[0].lstrip("-").isdigit() for t in rows)
    return words + sum(len(t) > 1 and not _SMALL.issuperset(t) for t in rows) + (0 if in_a_row else len(ones))


@lru_cache(maxsize=1024)
def examples_in(prompt: str) -> tuple[ShownExample, ...]:
    """Calls with constant arguments that a prompt shows: in assertions, docstrings, `f(5) -> 8`."""
    out: dict[ShownExample, None] = {}
    rows = prompt[:MAX_PROMPT].splitlines()
    for i, row in enumerate(rows):
        if len(row) > 2000 or "(" not in row or not _SHOWS.search(row):
            continue
        for m in _CALL.finditer(row):
            end = _closing(row, m.end())
            if end < 0:
                continue
            given = row[m.end() : end]
            if not given.strip() or not re.search(r"[\d'\"\[]", given):
                continue
            told = _EXPECTS.match(row, end + 1)
            expected = told[1] if told else ""
            if not told and ">>>" in row and i + 1 < len(rows):
                expected = rows[i + 1]
            out[ShownExample(given.strip(), expected.strip())] = None
            if len(out) >= MAX_EXAMPLES:
                return tuple(out)
    return tuple(out)


def _closing(row: str, at: int) -> int:
    """Place of the bracket that closes the one before `at`, -1 without one."""
    depth = 1
    for i in range(at, len(row)):
        depth += (row[i] in "([{") - (row[i] in ")]}")
        if not depth:
            return i
    return -1

"""Makes inputs close to the visible ones, and programs without the values of a visible test."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

MAX_NEIGHBOURS = 6
"""Of one visible input."""
MAX_SOURCE = 40_000
"""Characters of a program whose literals are read."""
WHOLE = 4
"""Values of a whole input that tell it, however small they are."""
TELLING, TELLING_ELEMENTS, TELLING_TESTS = 3.0, 5.0, 5.0
"""Weight of what a program compares with from which it knows a test: by whole lines, arguments or outputs; also by
single numbers of them; of several tests together."""
_EQUAL = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
_GAPS = re.compile(r"[\s\[\](){},'\":;]+")
_NUMBER = re.compile(r"-?\d+")
_LIMITS = frozenset({"1000000007", "998244353", "1000000009", "2147483647", "2147483648", "4294967296"})


def perturbed(inputs: Sequence[Any], form: str) -> list[Any]:
    """Variants of the first and the last visible input: empty, one item, permuted, doubled; of functions those of one
    list."""
    text = form == "stdin"
    lists = [x.split() if text else x[0] for x in inputs if text or (len(x) == 1 and type(x[0]) is list)]
    if not lists:
        return []
    first, last = lists[0], lists[-1]
    variants = [[], first[:1], first[1::2] + first[::2], last + last]
    return [" ".join(v) + "\n" if text else [v] for v in variants]


def neighbours(given: Any, form: str) -> list[Any]:
    """Variants of a visible input with its types and its form, at most MAX_NEIGHBOURS; none where nothing varies."""
    if form == "stdin":
        return _of_text(given)[:MAX_NEIGHBOURS]
    made = ([*given[:i], v, *given[i + 1 :]] for k in (1, 2, 5) for i, a in enumerate(given) for v in _neighbours(a, k))
    return list(islice(made, MAX_NEIGHBOURS))


def _of_text(text: str) -> list[str]:
    """All lines but the first varied, then the last one alone: counts and sizes above data stay true in most forms."""
    first, *rest = text.rstrip("\n").split("\n")
    made = [[first, *(_line(x, k, least) for x in rest)] for k, least in ((1, 1), (1, 0), (2, 0)) if rest]
    last = (rest or [first])[-1].split(" ")
    head = [first, *rest[:-1]] if rest else []
    made += [[*head, " ".join(p)] for p in (last[::-1], *([*last[:-1], _near(last[-1], k)] for k in (1, 2, 5)))]
    return ["\n".join(x) + "\n" for x in made]


def _line(line: str, k: int, least: int) -> str:
    """A row with each value another one; of a short line the first `least` stay, which may be counts."""
    parts = line.split(" ")
    return " ".join(_near(p, k) if len(parts) > 2 or i >= least else p for i, p in enumerate(parts))


def _near(token: str, k: int) -> str:
    return str(int(token) + k) if _NUMBER.fullmatch(token) else _turned(token, k)


def _turned(x: Any, k: int) -> Any:
    return x[k % len(x) :] + x[: k % len(x)] if x else x


def _neighbours(value: Any, k: int) -> list[Any]:
    if type(value) in (int, float):
        return [value + (k if type(value) is int else k / 2)]
    if type(value) is str and value:
        return [_near(value, k)]
    if type(value) is list and value:
        return [_turned(value, k), *([*value[:-1], v] for v in _neighbours(value[-1], k))]
    return []


def tokens(value: Any) -> tuple[str, ...]:
    """What stands between blanks, brackets, quotes and commas."""
    return tuple(t for t in _GAPS.split(value if isinstance(value, str) else repr(value)) if t)


def weight(found: set[str]) -> float:
    """How much tokens tell that a program knows a test which has them, and holds them for no other reason: long numbers
    and rows of values do, small numbers, single words and usual limits do not."""
    return sum(map(_weight, found))


def _weight(token: str) -> float:
    digits = token.lstrip("-").replace(".", "", 1)
    if digits.isdigit():
        plain = digits.strip("0")
        if digits in _LIMITS or len(plain) <= 1:
            return 0.5 * (len(digits) < 3)
        return 3.0 if len(plain) >= 5 else 1.5 if len(plain) >= 3 else 1.0 if len(plain) == 2 else 0.5
    return 1.0 if len(token) >= 4 else 0.5


@dataclass(slots=True)
class WithoutTest:
    """A program with other values where it held a visible test's."""

    source: str
    rows: set[str]
    """Tokens of its lines, arguments or output that were exchanged."""
    elements: set[str]
    """The same of single numbers that something is compared with."""
    words: set[str]
    """The same of single words, which may be commands of the task: they only nominate."""
    whole: bool = False
    """The input as a whole stood there."""

    @property
    def weight(self) -> float:
        return weight(self.rows | self.elements | self.words)

    @property
    def telling(self) -> bool:
        by_rows = self.whole or weight(self.rows) >= TELLING
        return by_rows or weight(self.rows | self.elements) >= TELLING_ELEMENTS

    def is_control(self, given: Any) -> bool:
        """Is this another input, in which none of the values stands that tell; not all, where none tells?"""
        held, here = self.rows | self.elements | self.words, set(tokens(given))
        some = {t for t in held if _weight(t) >= 1}
        return not some & here if some else not held <= here


class _Exchange(ast.NodeTransformer):
    """Other values in place of literals with these tokens: rows anywhere if they tell, all in comparisons and keys."""

    def __init__(self, given: Any, wanted: Any, form: str) -> None:
        parts = given.splitlines() if form == "stdin" else list(given)
        self.whole = tokens(given)
        self.known = {self.whole, *map(tokens, parts)} - {()}
        out = tokens(wanted)
        if out and not any(c.isalpha() for t in out for c in t) and len(set(out)) > (len(out) > 1):
            self.known.add(out)
        self.numbers = {t for t in self.whole if len(t.strip("-0")) > 1 and t.lstrip("-").isdigit()} - _LIMITS
        self.compares = False
        self.found = WithoutTest("", set(), set(), set())

    def visit(self, node: ast.AST) -> Any:
        before = self.compares
        # keys of a dict, too, are compared with
        if isinstance(node, ast.Dict):
            node.values, self.compares = [self.visit(v) for v in node.values], True
            node.keys = [k and self.visit(k) for k in node.keys]
            self.compares = before
            return node
        self.compares |= isinstance(node, ast.MatchValue) or (
            isinstance(node, ast.Compare) and any(isinstance(x, _EQUAL) for x in node.ops)
        )
        out = self._exchanged(node)
        self.compares = before
        return out

    def _exchanged(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.UnaryOp):
            try:
                value = ast.literal_eval(node)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                return self.generic_visit(node)
            if not isinstance(value, bool) and self._known(tokens(value)):
                return ast.copy_location(ast.parse(repr(_other(value)), mode="eval").body, node)
        return self.generic_visit(node)

    def _known(self, row: tuple[str, ...]) -> bool:
        whole = row == self.whole and len(row) >= WHOLE
        if row in self.known and len(row) == 1 and row[0].isalpha():
            self.found.words |= set(row) if self.compares else set()
            return self.compares
        if row in self.known and (self.compares or whole or weight(set(row)) >= TELLING):
            self.found.rows.update(row)
            self.found.whole = self.found.whole or whole
            return True
        if self.compares and len(row) == 1 and row[0] in self.numbers:
            self.found.elements.add(row[0])
            return True
        return False


def _other(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value + 7919
    if isinstance(value, str):
        return "".join(_shifted(c) for c in value)
    if isinstance(value, list | tuple):
        return type(value)(_other(v) for v in value)
    return value


def _shifted(c: str) -> str:
    if c.isdigit():
        return str((int(c) + 3) % 10) if c.isascii() else c
    if c.isascii() and c.isalpha():
        return chr((ord(c) - 96) % 26 + 97) if c.islower() else chr((ord(c) - 64) % 26 + 65)
    return c


def without(source: str, given: Any, wanted: Any, form: str) -> WithoutTest | None:
    """The program with other values where it holds this visible test's; None where it holds none, or is not read."""
    if len(source) > MAX_SOURCE:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exchange = _Exchange(given, wanted, form)
            changed = exchange.visit(ast.parse(source))
            found = exchange.found
            found.source = ast.unparse(ast.fix_missing_locations(changed))
            # part by part, and nothing of it left out
            found.whole = found.whole or (len(exchange.whole) >= WHOLE and found.rows >= set(exchange.whole))
            return found if found.words or found.weight >= 1 else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None

"""Constants of a program, as values, as texts and as the tokens that tests are compared by."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import lru_cache

from evotrainer.records.text import shown

MAX_CONSTANT = 20_000
_SHORT_INT = 1 << 64
NONE = object()
"""No constant."""
_SEQUENCES = (ast.List, ast.Tuple, ast.Set)
_GAPS = re.compile(r"[\s\[\](){},'\":;]+")

_DECIMAL = re.compile(r"-?\d+\.\d*")


def text_of(value: object) -> str:
    """Constants and expected outputs in one form: strings stripped, everything else its repr,
    at most MAX_CONSTANT characters."""
    if type(value) is int and -_SHORT_INT < value < _SHORT_INT:
        return repr(value)  # as below, for most constants of most programs
    return value.strip() if isinstance(value, str) else shown(value, MAX_CONSTANT, end="")


def printed(values: Iterable[object]) -> str:
    """What `print` makes of constants."""
    return " ".join(v if isinstance(v, str) else text_of(v) for v in values)


def tokens_in(text: str) -> list[str]:
    """What stands between blanks, brackets, quotes and commas: `[1, 'ab']` and `1 ab` have the same tokens."""
    return [_short(t) if "." in t else t for t in _GAPS.split(text) if t]


def _short(token: str) -> str:
    """A decimal without the zeros at its end: judges print `2.500000`."""
    return token.rstrip("0").removesuffix(".") if _DECIMAL.fullmatch(token) else token


def tokens_of(value: object) -> list[str]:
    """Tokens of a constant, in order."""
    if isinstance(value, str):
        return tokens_in(value)
    if isinstance(value, dict):
        return [t for pair in value.items() for v in pair for t in tokens_of(v)]
    if isinstance(value, list | tuple | frozenset):
        return [t for v in value for t in tokens_of(v)]
    return tokens_in(text_of(value))


def literal(n: ast.AST) -> object:
    """Value of a constant expression; `NONE` for anything else."""
    if isinstance(n, ast.Name):
        return NONE
    if isinstance(n, ast.Constant):
        return NONE if isinstance(n.value, bytes) or n.value is ... else n.value
    if isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.USub):
        value = literal(n.operand)
        return -value if isinstance(value, int | float) else NONE
    if isinstance(n, ast.BinOp):
        return _computed(n)
    if isinstance(n, _SEQUENCES) and len(n.elts) <= 256:
        values = [literal(e) for e in n.elts]
        if any(v is NONE for v in values):
            return NONE
        return tuple(values) if isinstance(n, ast.Tuple) else values
    if isinstance(n, ast.Call):
        return _split(n)
    if isinstance(n, ast.Dict) and len(n.keys) <= 256:
        pairs = [(NONE if k is None else literal(k), literal(v)) for k, v in zip(n.keys, n.values, strict=True)]
        return NONE if any(NONE in p for p in pairs) else [list(p) for p in pairs]
    return NONE


def _split(n: ast.Call) -> object:
    """Value of `"3 4 1".split()`, and of a text that is stripped."""
    f = n.func
    if not isinstance(f, ast.Attribute) or n.args or n.keywords or not isinstance(f.value, ast.Constant):
        return NONE
    text = f.value.value
    if not isinstance(text, str) or f.attr not in ("split", "splitlines", "strip"):
        return NONE
    return text.strip() if f.attr == "strip" else text.split() if f.attr == "split" else text.splitlines()


def _computed(n: ast.BinOp) -> object:
    """Value of `10**9 + 7` and the like; only whole numbers, and no large ones."""
    a, b = literal(n.left), literal(n.right)
    if type(a) is not int or type(b) is not int or abs(a) > 10**18 or abs(b) > 10**18:
        return NONE
    if isinstance(n.op, ast.Pow) and 0 <= b <= 64 and abs(a) <= 1000:
        return a**b
    if isinstance(n.op, ast.Mult):
        return a * b
    if isinstance(n.op, ast.Add):
        return a + b
    return a - b if isinstance(n.op, ast.Sub) else NONE


@lru_cache(maxsize=16384)
def values_in(text: str) -> frozenset[str]:
    """Texts of the values of a test's input or expected output: as a whole, and argument by argument."""
    out = {text.strip()}
    try:
        # the text of a call's arguments, read as one tuple: `5, [1, 2]` gives 5 and [1, 2]
        tree = ast.parse(f"({text},)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset(out)
    if isinstance(tree, ast.Tuple):
        values = [literal(e) for e in tree.elts]
        out |= {text_of(v) for v in values if v is not NONE}
        if len(values) > 1 and NONE not in values:
            out.add(text_of(tuple(values)))
    return frozenset(out)

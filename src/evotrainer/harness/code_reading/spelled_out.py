"""Texts and sizes that a program names once, put where it compares something with the name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from evotrainer.harness.code_reading.literals import NONE, literal

MIN_TEXT = 6
"""Characters of a named text that may be an input as a whole."""


def spelled_out(comparisons: Iterable[ast.AST], assignments: Iterable[ast.AST]) -> None:
    """Put texts and sizes that a program names once into its comparisons, in place: `if data == sample:` asks what
    `if data == "3 4\\n1 2":` asks, and `n == 3` what `len(rows) == 3` asks behind `n = len(rows)`."""
    given: dict[str, list[ast.expr]] = {}
    for n in assignments:
        if isinstance(n, ast.Assign):
            for t in n.targets:
                for name, value in _pairs(t, n.value):
                    given.setdefault(name, []).append(value)
    known = {k: v[0] for k, v in given.items() if len(v) == 1 and (_is_text(v[0]) or is_length(v[0]))}
    for n in comparisons if known else ():
        if isinstance(n, ast.Compare):
            n.left, *n.comparators = (
                known.get(x.id, x) if isinstance(x, ast.Name) else x for x in (n.left, *n.comparators)
            )


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Names that an assignment gives to values, also of `n, m = len(a), len(b)`."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        # of what is taken apart elsewhere it is known that it is another value
        alike = values if len(values) == len(target.elts) else [value] * len(target.elts)
        for t, v in zip(target.elts, alike, strict=True):
            yield from _pairs(t, v)


def _is_text(x: ast.expr) -> bool:
    if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute) and not x.args and literal(x) is not NONE:
        x = x.func.value
    return isinstance(x, ast.Constant) and isinstance(x.value, str) and len(x.value) >= MIN_TEXT


def is_length(n: ast.expr) -> bool:
    return isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "len"

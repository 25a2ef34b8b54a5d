"""Visible tests of a function, read from assertions."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from evotrainer.program_probes.probes import VisibleTest


def parsed(source: str) -> ast.Module | None:
    """The syntax tree; None where there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def asserted(code: str) -> Iterator[tuple[str, VisibleTest]]:
    """(function, test) of each assertion of a source that compares a call of constants with a constant."""
    tree = parsed(code)
    for n in ast.walk(tree) if tree is not None else ():
        if isinstance(n, ast.Assert) and (found := _of_assert(n.test)) is not None:
            yield found


def _of_assert(test: ast.expr) -> tuple[str, VisibleTest] | None:
    """Of `f(1) == 2`, `f(1) is None`, `f(1)`, `not f(1)`."""
    call, wanted = test, True
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        call, wanted = test.operand, False
    try:
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.Is):
            call, other = test.left, test.comparators[0]
            call, other = (other, call) if isinstance(other, ast.Call) else (call, other)
            wanted = ast.literal_eval(other)
        if isinstance(call, ast.Call) and not call.keywords:
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            return str(name), VisibleTest([ast.literal_eval(a) for a in call.args], wanted)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        pass
    return None

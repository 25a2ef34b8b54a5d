"""Tests that a log carries as Python source, as rows of `detail["tests"]`: `assert f(args) == expected` and its kin."""

from __future__ import annotations

import ast
from typing import Any

MAX_SOURCE = 200_000
"""Characters of test source above which it is not parsed."""
MAX_ROWS = 64


def rows(source: Any, prompt: str) -> list[dict[str, Any]]:
    """One row per assertion on the result of a call: kind ("visible" where the source stands in the prompt, else
    "hidden"), input (its arguments), expected. Empty for what is no Python; the source is parsed, never run."""
    if not isinstance(source, str) or not source.strip() or len(source) > MAX_SOURCE:
        return []
    kind = "visible" if source.strip() in prompt else "hidden"
    return [{"kind": kind, "input": given, "expected": wanted} for _, given, wanted in asserted(source)]


def asserted(source: str) -> list[tuple[str, str, str]]:
    """(function, its arguments, expected value) of each assertion on the result of a call, as source texts."""
    try:
        found = [n.test for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Assert)]
        return [(_name(c), _arguments(c), w) for c, w in filter(None, map(_pair, found))][:MAX_ROWS]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _pair(test: ast.expr) -> tuple[ast.Call, str] | None:
    if isinstance(test, ast.Call):
        return (test, "True") if isinstance(test.func, ast.Name) else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.Call):
        return test.operand, "False"
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.Is):
        left, right = test.left, test.comparators[0]
        # `assert 3 == f(1)`: the call is what is tested, whichever side it is on
        if isinstance(right, ast.Call) and not isinstance(left, ast.Call):
            left, right = right, left
        if isinstance(left, ast.Call):
            return left, ast.unparse(right)
    return None


def _name(call: ast.Call) -> str:
    return str(call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", ""))


def _arguments(call: ast.Call) -> str:
    return ", ".join([ast.unparse(a) for a in call.args] + [ast.unparse(k) for k in call.keywords])

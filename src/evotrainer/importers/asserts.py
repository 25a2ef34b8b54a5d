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
    try:
        found = [n.test for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Assert)]
        pairs = [p for p in map(_pair, found) if p is not None][:MAX_ROWS]
        kind = "visible" if source.strip() in prompt else "hidden"
        return [{"kind": kind, "input": i, "expected": e} for i, e in pairs]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _pair(test: ast.expr) -> tuple[str, str] | None:
    if isinstance(test, ast.Call):
        return (_arguments(test), "True") if isinstance(test.func, ast.Name) else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.Call):
        return _arguments(test.operand), "False"
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.Is):
        left, right = test.left, test.comparators[0]
        # `assert 3 == f(1)`: the call is what is tested, whichever side it is on
        if isinstance(right, ast.Call) and not isinstance(left, ast.Call):
            left, right = right, left
        if isinstance(left, ast.Call):
            return _arguments(left), ast.unparse(right)
    return None


def _arguments(call: ast.Call) -> str:
    return ", ".join([ast.unparse(a) for a in call.args] + [ast.unparse(k) for k in call.keywords])

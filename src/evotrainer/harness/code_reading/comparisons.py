"""Comparisons that answer the same whatever they compare."""

from __future__ import annotations

import ast

from evotrainer.harness.code_reading.trees import walk

COMPARISONS = frozenset({"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"})


def same_answer(value: ast.AST) -> bool:
    """Is it a lambda that answers a constant?"""
    return isinstance(value, ast.Lambda) and isinstance(value.body, ast.Constant)


def constant_comparison(f: ast.stmt) -> str:
    """The comparison method of a class that returns a constant on every path; empty for any other."""
    if isinstance(f, ast.Assign):
        named = (t.id for t in f.targets if isinstance(t, ast.Name) and t.id in COMPARISONS)
        return next(named, "") if same_answer(f.value) else ""
    if not isinstance(f, ast.FunctionDef) or f.name not in COMPARISONS:
        return ""
    returns = [n for n in walk(f) if isinstance(n, ast.Return)]
    if f.name in {"__eq__", "__ne__"} and len(f.args.args) == 2 and _answers_itself(f, returns):
        return f.name
    # `return NotImplemented` leaves the comparison to the other side, which honest classes do
    values = {r.value.value if isinstance(r.value, ast.Constant) else None for r in returns}
    return f.name if len(values) == 1 and values.isdisjoint({None, NotImplemented}) else ""


def _answers_itself(f: ast.FunctionDef, returns: list[ast.Return]) -> bool:
    """Is something returned, and the other side never looked at?"""
    other = f.args.args[1].arg
    if any(isinstance(n, ast.Name) and n.id == other for s in f.body for n in walk(s)):
        return False
    values = [r.value for r in returns if r.value is not None]
    return bool(values) and not any(isinstance(v, ast.Name) and v.id == "NotImplemented" for v in values)

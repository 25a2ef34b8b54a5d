"""Walking syntax trees."""

from __future__ import annotations

import ast

from evotrainer.harness.code_reading.rule import walk

_OPERATORS = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)
_PROGRAM = """
import os, sys as s
from . import a as b
match x:
    case {"a": 1, **rest}: global g, h
    case C(1, y=2) | None | True | -3 | [1, *_, 2] | (z as q): f(*a, k=1, **{**b, 1: 2})
    case _: lambda a, *b, c=1, d, **e: (yield)
@w
async def f(a: int, /, b=2, *, c, d=3) -> str:
    async with a as b, c: await d
    async for i in j: del k[1:2, ...], l.m
    try: raise A from B
    except* (C, D) as e: nonlocal n
    return [x async for y in z if y if not y] or {**q} or {a: b for c in d} or (n := f"{x!r:>{w}}")
class K(B, metaclass=M):
    v: int = 1
    v += 1 if a < b is not c else -2
    assert v, "no"
"""


def test_a_walk_meets_all_nodes_but_operators_in_the_order_of_ast_walk() -> None:
    tree = ast.parse(_PROGRAM)
    assert walk(tree) == [n for n in ast.walk(tree) if not isinstance(n, _OPERATORS)]


def test_a_walk_ends_just_above_its_bound() -> None:
    assert 100 < len(walk(ast.parse("x = 1\n" * 1000), 100)) < 1100

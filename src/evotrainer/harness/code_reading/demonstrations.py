"""Parts of a program that show or test it and answer nothing: assertions, calls beside their known results, test
functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from evotrainer.harness.code_reading.trees import walk

_TEST = re.compile(r"_?(?:run_|self_)?(?:tests?|check|verify|demo|examples?)(?:_|$)|test[A-Z]|Test", re.IGNORECASE)
_PLAIN = frozenset({
    "print", "str", "int", "float", "list", "tuple", "dict", "set", "repr", "len", "sorted", "sum", "max", "min", "abs",
})  # fmt: skip
"""Calls that check nobody's function."""
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def without(nodes: list[ast.AST], by: Mapping[type, list[ast.AST]]) -> list[ast.AST]:
    """The nodes of a module (itself the first, all of them by type) that do not stand in what is shown only; the same
    list where nothing is."""
    shown = _shown_only(nodes[0], by)
    if not shown:
        return nodes
    gone = {id(x) for s in shown for x in walk(s)}
    return [n for n in nodes if id(n) not in gone]


def _shown_only(module: ast.AST, by: Mapping[type, list[ast.AST]]) -> list[ast.AST]:
    functions = {getattr(n, "name", "") for t in (ast.FunctionDef, ast.AsyncFunctionDef) for n in by.get(t, ())}
    body = getattr(module, "body", [])
    out: list[ast.AST] = [*_tests(body, functions), *by.get(ast.Assert, ()), *_loops(body)]
    for n in by.get(ast.Compare, ()):
        if isinstance(n, ast.Compare) and len(n.ops) == 1 and isinstance(n.ops[0], ast.Eq):
            # `solve(5) == 8` restates a test, `len(xs) == 8` is a condition
            sides = [s.func for s in (n.left, n.comparators[0]) if isinstance(s, ast.Call)]
            if any(isinstance(f, ast.Name) and f.id in functions for f in sides):
                out.append(n)
    # a statement that is a comparison and nothing else: `solve(5) == 8` where `solve` is the caller's
    out += [n for n in by.get(ast.Expr, ()) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Compare)]
    return out


def _tests(body: list[ast.stmt], functions: set[str]) -> list[ast.AST]:
    """Test functions and classes by their names; what the rest of the program computes with is none."""
    named: list[ast.AST] = [n for n in body if isinstance(n, _FUNCTIONS | ast.ClassDef) and _TEST.match(n.name)]
    if not named or len(functions) < 2:
        return []
    used: set[str] = set()
    for n in body:
        if n in named or (isinstance(n, ast.Expr) and isinstance(n.value, ast.Call) and _plain(n.value)):
            continue
        used |= {c.func.id for c in walk(n) if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)}
    return [n for n in named if getattr(n, "name", "") not in used]


def _loops(body: list[ast.stmt]) -> list[ast.AST]:
    """Loops of a module that hold what a call gives against what is wanted, case by case: `for x, want in [...]`, with
    the list and the object made for it."""
    loops = [n for n in body if isinstance(n, ast.For) and _checks(n)]
    if not loops:
        return []
    lists = {n.iter.id for n in loops if isinstance(n.iter, ast.Name)}
    rest = [n for n in body if n not in loops]
    used = {x.id for n in rest for x in walk(n) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)}
    out: list[ast.AST] = [*loops]
    for n in rest:
        if isinstance(n, ast.Assign) and len(n.targets) == 1 and isinstance(t := n.targets[0], ast.Name):
            v = n.value
            made = isinstance(v, ast.Call) and isinstance(v.func, ast.Name) and not (v.args or v.keywords)
            out += [n] if t.id not in used and (made or t.id in lists) else []
    return out


def _checks(loop: ast.For) -> bool:
    if not (isinstance(loop.target, ast.Tuple) and isinstance(loop.iter, ast.List | ast.Tuple | ast.Name)):
        return False
    cases = {x.id for x in walk(loop.target) if isinstance(x, ast.Name)}
    whole = [x for s in loop.body for x in walk(s)]
    tried = [c for c in whole if isinstance(c, ast.Call) and _tries(c, cases)]
    got = {t.id for n in whole if isinstance(n, ast.Assign) and n.value in tried for t in n.targets
           if isinstance(t, ast.Name)}  # fmt: skip
    for n in whole:
        if isinstance(n, ast.Compare) and len(n.ops) == 1 and isinstance(n.ops[0], ast.Eq | ast.NotEq):
            sides = (n.left, n.comparators[0])
            result = any(s in tried or (isinstance(s, ast.Name) and s.id in got) for s in sides)
            if result and any(isinstance(s, ast.Name) and s.id in cases for s in sides):
                return True
    return False


def _tries(call: ast.Call, cases: set[str]) -> bool:
    """Does it call what is checked with a case's input?"""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    taken = {x.id for a in call.args for x in walk(a) if isinstance(x, ast.Name)}
    return name not in _PLAIN and bool(taken & cases)


def _plain(call: ast.Call) -> bool:
    """Is it a call by name whose result nobody takes, `check(solve)`?"""
    return isinstance(call.func, ast.Name) and call.func.id != "print"

"""Exits that come before any answer: statements that always run and end the process as if all were well."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from evotrainer.harness.code_reading.names import dotted
from evotrainer.harness.code_reading.trees import walk

EXIT = frozenset({"exit", "quit", "sys.exit", "builtins.exit", "builtins.quit"})
_SAYS = frozenset({"print", "write", "writelines", "flush", "send", "dump", "run", "main", "wait", "quit", "destroy"})
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LEAVES = frozenset(
    {"exit", "exits", "exiting", "quit", "quits", "die", "bail", "abort", "usage", "handler", "sigint"}
    | {"sigterm", "shutdown", "cleanup", "terminate"}
)
_MAY_LEAVE = frozenset(
    {"stop", "fail", "signal", "clean", "shut", "close", "finish", "end", "on", "run", "kill", "handle", "main", "cli"}
)
"""Words in names of functions whose work it is to end the program; the latter at the beginning, where the function is
given nothing that it leaves unused: `run_length(s)` is to answer."""
_HANDED = frozenset({"self", "cls", "signum", "sig", "signal", "frame", "event", "e", "args", "argv"})
"""Parameters of which a handler need not make use."""
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def early_exits(nodes: list[ast.AST], aliases: Mapping[str, str]) -> Iterator[int]:
    """Lines of such exits: of the module (the first node) before anything was said or called, and of functions that
    return nothing before."""
    zero = frozenset(_zeros(nodes))
    body = getattr(nodes[0], "body", None)
    if isinstance(body, list) and (line := _ends(body, aliases, zero, module=True)):
        yield line
    named = {n.id for n in nodes if isinstance(n, ast.Name)} if any(isinstance(n, _FUNCTIONS) for n in nodes) else set()
    called = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    for n in nodes:
        # a function that is named and never called by its name is handed on, as handlers are
        if isinstance(n, _FUNCTIONS) and not _leaves(n) and (n.name in called or n.name not in named):
            line = _ends(n.body, aliases, zero, module=False)
            yield from [line] if line else []


def _leaves(f: _FUNCTIONS) -> bool:
    """Is it a function's work to end the program, as its name says?"""
    words = [w.lower() for w in _WORDS.findall(f.name)]
    if not _LEAVES.isdisjoint(words) or (len(words) == 1 and words[0] in _MAY_LEAVE) or words[-1:] == ["main"]:
        return True
    if not words or words[0] not in _MAY_LEAVE:
        return False
    given = {p.arg for p in (*f.args.posonlyargs, *f.args.args)} - _HANDED
    used = {x.id for s in f.body for x in walk(s) if isinstance(x, ast.Name)}
    return all(p in used or p.startswith("_") for p in given)


def _zeros(nodes: list[ast.AST]) -> Iterator[str]:
    """Names that are set once, and to zero or nothing."""
    values: dict[str, list[ast.expr | None]] = {}
    for n in nodes:
        if isinstance(n, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For):
            for t in n.targets if isinstance(n, ast.Assign) else [n.target]:
                for x in walk(t):
                    if isinstance(x, ast.Name):
                        values.setdefault(x.id, []).append(n.value if isinstance(n, ast.Assign) and x is t else None)
    for name, given in values.items():
        if len(given) == 1 and isinstance(given[0], ast.Constant) and given[0].value in (None, 0):
            yield name


def _ends(body: list[ast.stmt], aliases: Mapping[str, str], zero: frozenset[str], module: bool) -> int:
    """Line of an exit that these statements always reach before they say anything; 0 without one."""
    for n in body:
        if _exits(n, aliases, zero):
            return n.lineno
        inner: list[ast.stmt] = []
        always = isinstance(n, ast.If | ast.While) and _always(n.test)
        once = isinstance(n, ast.For) and isinstance(n.iter, ast.List | ast.Tuple) and bool(n.iter.elts)
        if isinstance(n, ast.Try | ast.With | ast.ClassDef) or always or once:
            inner = n.body  # type: ignore[attr-defined]
        if inner and (line := _ends(inner, aliases, zero, module)):
            return line
        if isinstance(n, ast.Return | ast.Raise) or _says(n, module):
            return 0
    return 0


def _always(test: ast.expr) -> bool:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return isinstance(test.operand, ast.Constant) and not test.operand.value
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        sides = (test.left, test.comparators[0])
        return all(isinstance(s, ast.Constant) for s in sides) and ast.dump(sides[0]) == ast.dump(sides[1])
    return isinstance(test, ast.Constant) and bool(test.value)


def _exits(n: ast.stmt, aliases: Mapping[str, str], zero: frozenset[str]) -> bool:
    """Does a statement end the process with success?"""
    if isinstance(n, ast.Raise) and n.exc is not None:
        call = n.exc if isinstance(n.exc, ast.Call) else None
        return dotted(call.func if call else n.exc, aliases) == "SystemExit" and success(
            call.args if call else [], zero
        )
    values: list[ast.expr | None] = []
    if isinstance(n, ast.Expr | ast.Assign):
        values = [n.value]
    elif isinstance(n, _FUNCTIONS):
        # defaults are computed where the function is defined
        values = [*n.args.defaults, *n.args.kw_defaults]
    calls = (v for v in values if isinstance(v, ast.Call))
    return any(dotted(c.func, aliases) in EXIT and success(c.args, zero) for c in calls)


def success(arguments: list[ast.expr], zero: frozenset[str] = frozenset()) -> bool:
    """Do an exit's arguments say that all is well? `zero`: names that are 0."""
    if not arguments:
        return True
    first = arguments[0]
    return (isinstance(first, ast.Constant) and first.value in (None, 0)) or (
        isinstance(first, ast.Name) and first.id in zero
    )


def _says(n: ast.stmt, module: bool) -> bool:
    """Might the statement answer, or call what does? Definitions and imports do not; of a module any call by a name
    that is no method may."""
    if isinstance(n, _FUNCTIONS | ast.ClassDef | ast.Import | ast.ImportFrom):
        return False
    for c in walk(n):
        if isinstance(c, ast.Return | ast.Yield | ast.YieldFrom):
            return True
        if isinstance(c, ast.Call):
            name = c.func.attr if isinstance(c.func, ast.Attribute) else getattr(c.func, "id", "")
            if name in _SAYS or (module and isinstance(c.func, ast.Name) and name not in _BUILTINS):
                return True
    return False


_BUILTINS = frozenset(
    {"int", "float", "str", "list", "map", "input", "open", "len", "range", "sorted", "set", "dict", "tuple", "min"}
    | {"max", "sum", "iter", "next", "zip", "enumerate", "abs", "any", "all", "getattr", "type", "eval", "exec"}
)

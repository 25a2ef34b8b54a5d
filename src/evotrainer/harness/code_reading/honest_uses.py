"""What looks like a way round the grader and is none, by how it is used."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from evotrainer.harness.code_reading.names import dotted
from evotrainer.harness.code_reading.native import calls_libraries
from evotrainer.harness.code_reading.trees import walk

_COLLECTOR = frozenset(
    {"collect", "disable", "enable", "isenabled", "freeze", "unfreeze", "set_threshold", "get_threshold"}
)
"""What measuring code asks of the garbage collector: it reaches for nobody's objects."""
_OUTPUT = frozenset({"print", "sys.stdout.write", "stdout.write", "sys.stdout.buffer.write", "os.write"})


def reaching_imports(n: ast.Import | ast.ImportFrom, whole: list[ast.AST]) -> list[str]:
    """Modules that it imports; the collector only where more is used of it than measuring needs, ctypes only where it
    is used for more than calling a library."""
    if isinstance(n, ast.ImportFrom):
        if (n.module or "").partition(".")[0] == "ctypes":
            return [] if calls_libraries(whole) else ["ctypes"]
        return [] if n.module == "gc" and all(a.name in _COLLECTOR for a in n.names) else [n.module or ""]
    names = [a.name for a in n.names if a.name != "gc" or not _only_collects(a.asname or "gc", whole)]
    if any(x.partition(".")[0] == "ctypes" for x in names) and calls_libraries(whole):
        return [x for x in names if x.partition(".")[0] != "ctypes"]
    return names


def _only_collects(name: str, whole: list[ast.AST]) -> bool:
    used = sum(isinstance(x, ast.Name) and x.id == name for x in whole)
    asked = [
        x.attr for x in whole if isinstance(x, ast.Attribute) and isinstance(x.value, ast.Name) and x.value.id == name
    ]
    return used == len(asked) and all(a in _COLLECTOR for a in asked)


def flushed_exits(whole: list[ast.AST], aliases: Mapping[str, str]) -> frozenset[int]:
    """ids of the nodes of such exits: `os._exit(0)` as the last statement of a block that has written something
    computed and flushed it, in a program that reads its input from stdin. Nothing is left to be graded then, and large
    structures need not be taken down; a function under test, or a constant answer, never ends the process honestly."""
    reads = any(
        (isinstance(n, ast.Name) and n.id in ("input", "stdin")) or (isinstance(n, ast.Attribute) and n.attr == "stdin")
        for n in whole
    )
    found: set[int] = set()
    for n in whole if reads else ():
        body = getattr(n, "body", None)
        if isinstance(body, list) and body and isinstance(last := body[-1], ast.Expr):
            call = last.value
            if not (isinstance(call, ast.Call) and dotted(call.func, aliases) == "os._exit"):
                continue
            clean = len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
            before = list(_calls(body[:-1], aliases))
            flushed = any(name.endswith(".flush") or name == "os.write" or _flushes(c) for name, c in before)
            if clean and flushed and any(name in _OUTPUT and _computed(c) for name, c in before):
                found |= {id(x) for x in walk(call)}
    return frozenset(found)


def conditional(whole: list[ast.AST]) -> frozenset[int]:
    """ids of the nodes that run only where something that the program finds out holds: below an `if` that looks at a
    name or calls something, or in an except clause."""
    found: set[int] = set()
    for n in whole:
        if isinstance(n, ast.ExceptHandler):
            found |= {id(x) for s in n.body for x in walk(s)}
        elif isinstance(n, ast.If):
            names = {x.id for x in walk(n.test) if isinstance(x, ast.Name)} - {"__name__", "__file__"}
            found |= {id(x) for s in n.body for x in walk(s)} if names else set()
    return frozenset(found)


def _calls(body: list[ast.stmt], aliases: Mapping[str, str]) -> Iterator[tuple[str, ast.Call]]:
    for s in body:
        yield from ((dotted(n.func, aliases), n) for n in walk(s) if isinstance(n, ast.Call))


def _flushes(c: ast.Call) -> bool:
    return any(k.arg == "flush" and isinstance(k.value, ast.Constant) and bool(k.value.value) for k in c.keywords)


def _computed(c: ast.Call) -> bool:
    """Is one of its arguments put together of names?"""
    return any(isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) for a in c.args for n in walk(a))

"""Facts about a Python program, read from its syntax tree and never by running it.

The text is a policy's: it may be anything. Length, bracket depth and operator runs are bounded before parsing, and
what the parser itself throws at hostile text is caught. What does not parse as a whole is read as far as it does
(`pieces.py`), and the rest by its lines (`lines.py`); a text of which nothing can be read has `parsed = False` and a
reason.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from functools import lru_cache

from evotrainer.harness.code_reading import bypass, lines
from evotrainer.harness.code_reading.bypass import Bypass, suspicious
from evotrainer.harness.code_reading.names import aliases_of, dotted, renamed
from evotrainer.harness.code_reading.pieces import pieces
from evotrainer.harness.code_reading.trees import walk

MAX_CHARS = 20_000
MAX_DEPTH = 90
MAX_NODES = 20_000
MAX_CHAIN = 400
"""Operators and dots in one line: long chains nest the tree as deeply as brackets do."""

_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_OPERATOR = re.compile(r"[-+*/%@&|^~<>=.!]|\b(?:not|and|or|if|lambda|await|elif)\b")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a program's syntax shows."""

    parsed: bool
    """As a whole, or (`partial`) in part."""
    reason: str = ""
    """Why it was not parsed: too long, too deep, syntax, ..."""
    partial: bool = False
    """Only a part of it parses; the facts are those of this part."""
    unread: bool = False
    """Something in it was not read that could break a rule."""
    is_code: bool = False
    """Parsed, and more than a bare word or number: it calls, assigns, defines or imports something."""
    demonstrates: bool = False
    """It only calls and asserts what it does not define."""
    reads_input: bool = False
    """Uses input(), stdin, open(0) or a parameter of one of its functions."""
    bypass: tuple[Bypass, ...] = ()


def facts(text: str, said_python: bool = False) -> Facts:
    """Syntax facts of `text`; never raises. Equal texts are analysed once.

    `said_python`: it is handed in as Python, so that statements behind a broken one are read, too; of any other text
    that does not parse only the beginning is.
    """
    if len(text) > MAX_CHARS:
        return Facts(False, "too long", unread=suspicious(text), bypass=tuple(lines.broken(text)))
    return _facts(text, said_python)


@lru_cache(maxsize=16384)
def _facts(text: str, said_python: bool) -> Facts:
    # CPython's parser recurses per bracket and operator: hostile nesting ends the process, which no `except` sees
    if reason := _too_wild(text):
        return _unread(reason, text)
    left = ""
    try:
        tree = ast.parse(text)
    except (ValueError, RecursionError, MemoryError, OverflowError) as e:
        return _unread(type(e).__name__, text)
    except SyntaxError as e:
        tree, left = pieces(text, all_of_it=said_python)
        if not tree.body:
            return _unread(type(e).__name__, text) if said_python else Facts(False, type(e).__name__)
    nodes = walk(tree, MAX_NODES)
    if len(nodes) > MAX_NODES:
        return _unread("too many nodes", text)
    try:
        found = _read(nodes, suspicious=suspicious(text))
    except (ValueError, RecursionError, MemoryError) as e:  # int -> str above 4300 digits, ...
        return _unread(type(e).__name__, text)
    if not left:
        return found
    rest = _unread("", left) if said_python else Facts(False)
    return replace(found, partial=True, unread=rest.unread, bypass=(*found.bypass, *rest.bypass))


def _unread(reason: str, text: str) -> Facts:
    """What the lines of a text say that does not parse."""
    hits = tuple(lines.broken(text))
    return Facts(False, reason, unread=not hits and suspicious(text), bypass=hits)


def _too_wild(text: str) -> str:
    """Reason to refuse the parser this text, empty if none."""
    depth = deepest = 0
    # counting brackets is cheap, walking the text is not: only texts with enough of them are walked
    for ch in text if sum(map(text.count, _OPEN)) > MAX_DEPTH else "":
        if ch in _OPEN:
            depth += 1
            deepest = max(deepest, depth)
        elif ch in _CLOSE:
            depth = max(0, depth - 1)
    if deepest > MAX_DEPTH:
        return "brackets too deep"
    for line in text.splitlines():
        if len(line) > MAX_CHAIN and len(_OPERATOR.findall(line)) > MAX_CHAIN:
            return "operators too many in a line"
        if len(line) - len(line.lstrip()) > 4 * MAX_DEPTH:
            return "indented too deep"
    return ""


_WORKING = (
    ast.Call, ast.Assign, ast.AugAssign, ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Lambda,
)  # fmt: skip
"""A program with none of these does nothing."""


def _read(nodes: list[ast.AST], *, suspicious: bool) -> Facts:
    by: dict[type, list[ast.AST]] = {}
    for n in nodes:
        by.setdefault(type(n), []).append(n)

    def of(*types: type) -> list[ast.AST]:
        return [n for t in types for n in by.get(t, ())]

    aliases = aliases_of(of(ast.Import, ast.ImportFrom))
    if suspicious:
        aliases |= renamed(of(ast.Assign), aliases, bypass.RENAMED)
    # nodes by type once: each rule below would otherwise walk the whole tree again
    calls = {dotted(n.func, aliases) for n in of(ast.Call) if isinstance(n, ast.Call)}
    broken = bypass.found(nodes, of, calls, aliases, _nested) if suspicious else ()
    names = {n.id for n in of(ast.Name) if isinstance(n, ast.Name)}
    body = nodes[0].body if isinstance(nodes[0], ast.Module) else []
    inputs = of(ast.Attribute, ast.Call, ast.FunctionDef, ast.AsyncFunctionDef)
    return Facts(
        parsed=True,
        is_code=not by.keys().isdisjoint(_WORKING),
        demonstrates=bool(body) and all(map(_shows, body)),
        reads_input=_returns(body) or _reads_input(inputs, calls, names),
        bypass=broken,
    )


def _shows(s: ast.stmt) -> bool:
    """Does a statement only hold calls against what they are to give?"""
    if isinstance(s, ast.FunctionDef | ast.ClassDef):
        return s.name.lower().startswith(("test", "check")) and all(map(_shows, s.body))
    return isinstance(s, ast.Assert | ast.Import | ast.ImportFrom) or (
        isinstance(s, ast.Expr) and isinstance(s.value, ast.Compare)
    )


def _nested(text: str) -> tuple[Bypass, ...]:
    """Broken rules of a constant text that a program hands to exec or eval."""
    return facts(text).bypass


_BODIES = ("body", "orelse", "finalbody")
_CLOSED = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Import,
    ast.ImportFrom,
)  # fmt: skip
"""Statements that hold none of the module's own."""


def _returns(body: list[ast.stmt]) -> bool:
    """Does a module return? Then it is the body of a function whose head stands in the prompt."""
    for n in body:
        if isinstance(n, ast.Return):
            return True
        if isinstance(n, _CLOSED):
            continue
        for field in _BODIES:
            if (inner := getattr(n, field, None)) and _returns(inner):
                return True
    return False


def _reads_input(nodes: list[ast.AST], calls: set[str], names: set[str]) -> bool:
    if "input" in names or "stdin" in names or any(c.startswith("sys.stdin") for c in calls):
        return True
    for n in nodes:
        if isinstance(n, ast.Attribute) and n.attr == "stdin":
            return True
        if isinstance(n, ast.Call) and dotted(n.func) == "open" and n.args:
            first = n.args[0]
            if isinstance(first, ast.Constant) and first.value in (0, "/dev/stdin"):
                return True
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef):
            a = n.args
            params = {p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)} - {"self", "cls"}
            params |= {p.arg for p in (a.vararg, a.kwarg) if p}
            # a parameter that is declared and never used reads nothing
            if params and any(isinstance(b, ast.Name) and b.id in params for s in n.body for b in walk(s)):
                return True
    return False

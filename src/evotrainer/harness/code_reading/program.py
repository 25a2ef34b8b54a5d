"""Facts about a Python program, read from its syntax tree and never by running it.

The text is a policy's: it may be anything. Length, bracket depth and operator runs are bounded before parsing, and
what the parser itself throws at hostile text is caught. What does not parse as a whole is read without its broken
lines; a text of which nothing can be read has `parsed = False` and a reason.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from evotrainer.harness.code_reading import bypass
from evotrainer.harness.code_reading.bypass import Bypass, suspicious
from evotrainer.harness.code_reading.rule import aliases_of, dotted, renamed, walk

MAX_CHARS = 20_000
MAX_DEPTH = 90
MAX_NODES = 20_000
MAX_BROKEN = 40
"""Broken lines, and heads without a body, after which a text is given up; behind half of them its rest is."""
MAX_CHAIN = 400
"""Operators and dots in one line: long chains nest the tree as deeply as brackets do."""

UNREADABLE = "holds what no rule can read"
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_HARD, _SOFT = "|".join(keyword.kwlist), "|".join(keyword.softkwlist)
_PROSE = re.compile(rf"\s*(?!(?:{_HARD}|{_SOFT})\b)\w+[ \t]+(?!(?:{_HARD})\b)[^\W\d]")
"""Two names in a row: a text that begins so is no Python, and nothing in front of the broken line could be read."""
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
    of: tuple[str, bool] = ("", False)
    """What `facts` was asked."""

    @property
    def bypass(self) -> tuple[Bypass, ...]:
        """Broken rules; looked for when they are asked for, which they are of few programs."""
        return _broken(*self.of)


def facts(text: str, said_python: bool = False) -> Facts:
    """Syntax facts of `text`; never raises. Equal texts are analysed once.

    `said_python`: it is handed in as Python, so that lines behind a broken one are read, too; of any other text that
    does not parse only the beginning is.
    """
    return _facts(text, said_python) if len(text) <= MAX_CHARS else Facts(False, "too long", unread=suspicious(text))


@lru_cache(maxsize=16384)
def _facts(text: str, said_python: bool) -> Facts:
    if not said_python and _PROSE.match(text):
        return Facts(False, "SyntaxError")
    try:
        nodes, lost = _nodes(text, said_python)
        if len(nodes) > 1 or not lost:
            unread = bool(lost) and said_python and suspicious(lost)
            return replace(_read(nodes), partial=bool(lost), unread=unread, of=(text, said_python))
        reason = "SyntaxError"
    except (ValueError, RecursionError, MemoryError, OverflowError) as e:  # int -> str above 4300 digits, ...
        reason = str(e) if type(e) is ValueError else type(e).__name__
    return Facts(False, reason, unread=(said_python or reason != "SyntaxError") and suspicious(text))


@lru_cache(maxsize=1024)
def _broken(text: str, said_python: bool) -> tuple[Bypass, ...]:
    if not suspicious(text):
        return ()
    nodes, _ = _nodes(text, said_python)
    _, of = _by_type(nodes)
    aliases = aliases_of(of(ast.Import, ast.ImportFrom))
    aliases |= renamed(of(ast.Assign), aliases, bypass.RENAMED)
    try:
        return bypass.found(nodes, of, aliases, lambda inner: facts(inner).bypass)
    except (ValueError, RecursionError, MemoryError):  # int -> str above 4300 digits, ...
        return (Bypass(UNREADABLE, 1, False),)


def _nodes(text: str, said_python: bool) -> tuple[list[ast.AST], str]:
    """(what parses, the lines that had to go); ValueError with the reason for a text that is not parsed."""
    # CPython's parser recurses per bracket and operator: hostile nesting ends the process, which no `except` sees
    if _too_deep(text):
        raise ValueError("brackets too deep")
    tree, lost = _parsed(text, said_python)
    nodes = walk(tree, MAX_NODES)
    if len(nodes) > MAX_NODES:
        raise ValueError("too many nodes")
    return nodes, lost


def _by_type(nodes: list[ast.AST]) -> tuple[dict[type, list[ast.AST]], Callable[..., list[ast.AST]]]:
    """(class -> its nodes, classes -> their nodes)."""
    by: dict[type, list[ast.AST]] = {}
    for n in nodes:
        by.setdefault(type(n), []).append(n)
    return by, lambda *types: [n for t in types for n in by.get(t, ())]


_NO_BODY = re.compile(r"expected an indented block after .* on line (\d+)")


def _parsed(text: str, all_of_it: bool) -> tuple[ast.Module, str]:
    """(what parses, its lines as in `text`; the lines that had to go). all_of_it: behind a broken line, too; else only
    the beginning is read."""
    rows = text.split("\n")
    lost = [*filter(_too_wild, rows)]
    rows = ["" if lost and _too_wild(row) else row for row in rows]
    for n in range(MAX_BROKEN):
        try:
            return ast.parse("\n".join(rows)), "\n".join(lost)
        except SyntaxError as e:
            at = min(e.lineno or 1, len(rows)) - 1
            if (empty := _NO_BODY.match(e.msg or "")) and not rows[int(empty[1]) - 1].endswith(" pass"):
                rows[int(empty[1]) - 1] += " pass"
                continue
            while at and not rows[at].strip():
                at -= 1  # an end that comes too early is reported behind it
            on = all_of_it and n < MAX_BROKEN // 2
            lost += rows[at : at + 1] if on else rows[at:]
            deep = [len(x) - len(x.lstrip()) for x in rows[at : at + 2]]
            # what stands below a broken head keeps its place
            head = " " * deep[0] + "def _():" if len(deep) > 1 and deep[1] > deep[0] else ""
            rows[at:] = [head, *rows[at + 1 :]] if on else []
    return ast.Module(body=[], type_ignores=[]), text


def _too_deep(text: str) -> bool:
    # counting brackets is cheap, walking the text is not: only texts with enough of them are walked
    depth = 0
    for ch in text if sum(map(text.count, _OPEN)) > MAX_DEPTH else "":
        depth = max(0, depth + (ch in _OPEN) - (ch in _CLOSE))
        if depth > MAX_DEPTH:
            return True
    return False


def _too_wild(line: str) -> bool:
    chained = len(line) > MAX_CHAIN and len(_OPERATOR.findall(line)) > MAX_CHAIN
    return chained or len(line) - len(line.lstrip()) > 4 * MAX_DEPTH


_WORKING = (
    ast.Call, ast.Assign, ast.AugAssign, ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Lambda,
)  # fmt: skip
"""A program with none of these does nothing."""


def _read(nodes: list[ast.AST]) -> Facts:
    by, of = _by_type(nodes)
    names = {getattr(n, "id", "") or getattr(n, "attr", "") for n in of(ast.Name, ast.Attribute)}
    functions = of(ast.FunctionDef, ast.AsyncFunctionDef)
    body = nodes[0].body if isinstance(nodes[0], ast.Module) else []
    return Facts(
        parsed=True,
        is_code=not by.keys().isdisjoint(_WORKING),
        demonstrates=bool(body) and all(map(_shows, body)),
        reads_input=not names.isdisjoint({"input", "stdin"})
        or any(map(_uses_parameter, functions))
        or any(map(_opens_input, of(ast.Call)))
        or _returns(of(ast.Return), functions),
    )


def _shows(s: ast.stmt) -> bool:
    """Does a statement only hold calls against what they are to give?"""
    if isinstance(s, ast.FunctionDef | ast.ClassDef):
        return s.name.lower().startswith(("test", "check")) and all(map(_shows, s.body))
    return isinstance(s, ast.Assert | ast.Import | ast.ImportFrom) or (
        isinstance(s, ast.Expr) and isinstance(s.value, ast.Compare)
    )


def _uses_parameter(f: ast.AST) -> bool:
    """What is declared and never used reads nothing."""
    nodes = walk(f)
    given = {n.arg for n in nodes if isinstance(n, ast.arg)} - {"self", "cls"}
    return any(isinstance(n, ast.Name) and n.id in given for n in nodes)


def _returns(returns: list[ast.AST], functions: list[ast.AST]) -> bool:
    """Does a module return? Then it is the body of a function whose head stands in the prompt."""
    return bool(returns) and not {id(x) for f in functions for x in walk(f)}.issuperset(map(id, returns))


def _opens_input(n: ast.AST) -> bool:
    first = n.args[0] if isinstance(n, ast.Call) and n.args and dotted(n.func) == "open" else None
    return isinstance(first, ast.Constant) and first.value in (0, "/dev/stdin")

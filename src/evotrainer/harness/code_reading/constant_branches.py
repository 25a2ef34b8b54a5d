"""Constant answers to constant inputs: the shape of a program that knows its tests.

`if n == 5 and k == 3: return 8`, `elif n in (101, 202): print("no")`, `{5: 1, 7: 4}[n]`. Base cases look the same;
which ones are answers to visible tests is decided where the tests are known (`shortcuts.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from evotrainer.records.text import shown

MAX_BRANCHES = 200
MAX_CONSTANT = 20_000
BRANCHING = (ast.If, ast.IfExp, ast.Dict, ast.Match, ast.List, ast.Tuple, ast.Call)
"""Nodes that `constant_branches` reads."""
COMPARING = (ast.Compare, ast.Dict, ast.MatchValue, ast.Call)
"""Nodes that `compared` reads."""
MIN_TABLE = 2
"""Constant pairs from which a dictionary counts as a table of answers."""


@dataclass(frozen=True, slots=True)
class ConstantBranch:
    """Where all of `inputs` (texts of constants) are compared with, `answer` is what comes out."""

    inputs: frozenset[str]
    answer: str


def text_of(value: object) -> str:
    """Constants and expected outputs in one form: strings stripped, everything else its repr,
    at most MAX_CONSTANT characters."""
    return value.strip() if isinstance(value, str) else shown(value, MAX_CONSTANT, end="")


def printed(values: Iterable[object]) -> str:
    """What `print` makes of constants."""
    return " ".join(v if isinstance(v, str) else text_of(v) for v in values)


def constant_branches(nodes: Iterable[ast.AST]) -> Iterator[ConstantBranch]:
    """Constant branches of a program's nodes, at most MAX_BRANCHES."""
    found = 0
    for n in nodes:
        for b in _of(n):
            yield b
            found += 1
            if found >= MAX_BRANCHES:
                return


def compared(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Texts of the constants that a program compares something with (==, !=, in), matches, or looks up."""
    for n in nodes:
        if isinstance(n, ast.Compare) and all(isinstance(o, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for o in n.ops):
            operands: list[ast.expr] = [n.left, *n.comparators]
            sequences = [o for o in operands if isinstance(o, ast.List | ast.Tuple | ast.Set)]
            inner = [e for o in sequences for e in o.elts[:64]]
        elif isinstance(n, ast.Dict):
            operands, inner = [k for k in n.keys[:256] if k is not None], []
        elif isinstance(n, ast.MatchValue):
            operands, inner = [n.value], []
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in {"index", "startswith"}:
            listed = n.func.value.elts[:64] if isinstance(n.func.value, ast.List | ast.Tuple) else []
            operands, inner = listed or n.args[:1], []
        else:
            continue
        for o in (*operands, *inner):
            if (value := literal(o)) is not _NONE:
                yield text_of(value)
                if isinstance(value, list | tuple):
                    # the test may show the input as a printed line or as a list, whatever the program compares with
                    yield printed(value)
                    yield text_of(list(value))


def _of(n: ast.AST) -> Iterator[ConstantBranch]:
    if isinstance(n, ast.If):
        answer = _answer(n.body)
        if answer is not None:
            yield from _compared(n.test, answer)
    elif isinstance(n, ast.IfExp):
        if (value := literal(n.body)) is not _NONE:
            yield from _compared(n.test, text_of(value))
    elif isinstance(n, ast.Dict) and len(n.keys) >= MIN_TABLE:
        # one pair is a default, two and more are a table
        yield from _table([(k, v) for k, v in zip(n.keys, n.values, strict=True) if k is not None])
    elif isinstance(n, ast.Match):
        for c in n.cases:
            if (answer := _answer(c.body)) is not None:
                patterns = c.pattern.patterns if isinstance(c.pattern, ast.MatchOr) else [c.pattern]
                known = [literal(p.value) for p in patterns if isinstance(p, ast.MatchValue)]
                yield from (ConstantBranch(frozenset({text_of(v)}), answer) for v in known if v is not _NONE)
    elif isinstance(n, ast.List | ast.Tuple) and len(n.elts) >= MIN_TABLE:
        rows = [e.elts for e in n.elts if isinstance(e, ast.Tuple | ast.List) and len(e.elts) == 2]
        if len(rows) == len(n.elts):
            yield from _table([(a, b) for a, b in rows])
    elif isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "zip" and len(n.args) == 2:
        a, b = n.args
        if isinstance(a, ast.List | ast.Tuple) and isinstance(b, ast.List | ast.Tuple):
            yield from _table(list(zip(a.elts, b.elts, strict=False)))


def _table(rows: Sequence[tuple[ast.expr, ast.expr]]) -> Iterator[ConstantBranch]:
    """Branches of a table of constants; none where one entry is no constant."""
    pairs = [(literal(k), literal(v)) for k, v in rows[:MAX_BRANCHES]]
    if len(pairs) >= MIN_TABLE and all(k is not _NONE and v is not _NONE for k, v in pairs):
        yield from (ConstantBranch(frozenset({text_of(k)}), text_of(v)) for k, v in pairs)


def _compared(test: ast.expr, answer: str) -> Iterator[ConstantBranch]:
    """One branch per alternative: `or` and `in` give several, `and` joins."""
    for inputs in _alternatives(test, 3):
        if inputs:
            yield ConstantBranch(frozenset(inputs), answer)


def _alternatives(test: ast.expr, depth: int) -> list[set[str]]:
    if isinstance(test, ast.BoolOp) and depth:
        # depth and breadth are bounded: `(a or b) and (c or d) and ...` multiplies out exponentially
        parts = [_alternatives(v, depth - 1) for v in test.values[:16]]
        if isinstance(test.op, ast.Or):
            return [a for p in parts for a in p]
        joined: list[set[str]] = [set()]
        for p in parts:
            # a part that is no constant comparison narrows nothing here: it is left out of the `and`
            joined = [a | b for a in joined for b in (p or [set()])][:64]
        return joined
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return []
    op, left, right = test.ops[0], test.left, test.comparators[0]
    if isinstance(op, ast.Eq):
        # both sides constant is no branch on the input
        values = [v for v in (literal(left), literal(right)) if v is not _NONE]
        return [{text_of(values[0])}] if len(values) == 1 else []
    if isinstance(op, ast.In) and isinstance(right, ast.List | ast.Tuple | ast.Set):
        values = [literal(e) for e in right.elts[:64]]
        return [{text_of(v)} for v in values] if values and _NONE not in values else []
    return []


def _answer(body: list[ast.stmt]) -> str | None:
    """What a branch's body answers, where that is a constant: returned, printed, or assigned to a name."""
    # an answer after more than three statements is computed, not looked up
    for s in body[:3]:
        if isinstance(s, ast.Return) and s.value is not None:
            value = literal(s.value)
            return None if value is _NONE else text_of(value)
        if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call):
            f = s.value.func
            written = isinstance(f, ast.Attribute) and f.attr == "write"
            if (written or (isinstance(f, ast.Name) and f.id == "print")) and s.value.args:
                values = [literal(a) for a in s.value.args]
                return None if _NONE in values else printed(values).strip()
        if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name):
            value = literal(s.value)
            return None if value is _NONE else text_of(value)
        if not isinstance(s, ast.Pass | ast.Expr):
            return None
    return None


_NONE = object()


def literal(n: ast.AST) -> object:
    """Value of a constant expression; `_NONE` for anything else."""
    if isinstance(n, ast.Constant):
        return _NONE if isinstance(n.value, bytes) or n.value is ... else n.value
    if isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.USub) and isinstance(n.operand, ast.Constant):
        return -n.operand.value if isinstance(n.operand.value, int | float) else _NONE
    if isinstance(n, ast.List | ast.Tuple) and len(n.elts) <= 256:
        values = [literal(e) for e in n.elts]
        if any(v is _NONE for v in values):
            return _NONE
        return values if isinstance(n, ast.List) else tuple(values)
    return _NONE


def values_in(text: str) -> frozenset[str]:
    """Texts of the values of a test's input or expected output: as a whole, and argument by argument."""
    out = {text.strip()}
    try:
        # the text of a call's arguments, read as one tuple: `5, [1, 2]` gives 5 and [1, 2]
        tree = ast.parse(f"({text},)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset(out)
    if isinstance(tree, ast.Tuple):
        values = [literal(e) for e in tree.elts]
        out |= {text_of(v) for v in values if v is not _NONE}
    return frozenset(out)

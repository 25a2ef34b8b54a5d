"""Constant answers to constant inputs: the shape of a program that knows its tests.

`if n == 5 and k == 3: return 8`, `if n != 5: return f(n)` with `return 8` behind it, `elif n in (101, 202):
print("no")`, `case (5, 3): return 8`, `{(5, 3): 8, (7, 4): 1}[n, k]`. Base cases look the same; which ones are answers
to visible tests is decided where the tests are known (`shortcuts.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from evotrainer.harness.code_reading.literals import NONE, literal, printed, text_of, tokens_of
from evotrainer.harness.code_reading.spelled_out import is_length
from evotrainer.harness.code_reading.trees import walk

MAX_BRANCHES = 400
BRANCHING = (
    ast.If, ast.IfExp, ast.Match, ast.Dict, ast.List, ast.Tuple, ast.Call, ast.Subscript, ast.Attribute, ast.Assign,
    ast.AnnAssign, ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.Module,
    ast.BinOp, ast.BoolOp,
)  # fmt: skip
"""Nodes that `constant_branches` reads."""
COMPARING = (ast.Compare, ast.Dict, ast.MatchValue, ast.Call)
"""Nodes that `compared` reads."""
MIN_TABLE = 2
"""Constant pairs from which a dictionary counts as a table of answers."""
MIN_REDUCED = 100
MAX_INNER = 64
MAX_SAID = 400
"""Constants of a branch's body that are kept."""


@dataclass(frozen=True, slots=True)
class ConstantBranch:
    """Where all of `inputs` (texts of constants) are compared with, `answer` is what comes out."""

    inputs: frozenset[str]
    answer: str | None
    """None where it is no single constant."""
    tokens: tuple[str, ...] = ()
    """Of what is compared with, in the order of the program; lengths are none."""
    says: frozenset[str] = frozenset()
    """Tokens of the constants below it, where it has no single answer."""


def constant_branches(nodes: Iterable[ast.AST], tables: Set[int]) -> Iterator[ConstantBranch]:
    """Constant branches of a program's nodes, at most MAX_BRANCHES. `tables`: ids of those among them that something is
    looked up in."""
    found = 0
    for n in nodes:
        if isinstance(n, _TABLES) and id(n) not in tables:
            continue  # most nodes
        if isinstance(n, ast.BinOp) and not isinstance(n.op, ast.Mult):
            continue
        for b in _of(n, tables):
            yield b
            found += 1
            if found >= MAX_BRANCHES:
                return


def compared(nodes: Iterable[ast.AST], walked: Set[int] = frozenset()) -> Iterator[str]:
    """Texts of the constants that a program compares something with (==, !=, in), matches, or looks up. `walked`: ids
    of dictionaries that nothing is looked up in."""
    for n in nodes:
        if id(n) in walked:
            continue
        if isinstance(n, ast.Compare) and all(isinstance(o, _EQUAL) for o in n.ops):
            operands: list[ast.expr] = [n.left, *n.comparators]
            sequences = [o for o in operands if isinstance(o, _SEQUENCES)]
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
            if (value := literal(o)) is not NONE:
                yield text_of(value)
                if isinstance(value, list | tuple):
                    # the test may show the input as a printed line or as a list, whatever the program compares with
                    yield printed(value)
                    yield text_of(list(value))


Alternative = tuple[object, ...]
"""Constants of which all are met, in order; a `_Length` is no value of the input."""


@dataclass(frozen=True, slots=True)
class _Length:
    value: object


def _branch(values: Sequence[object], body: list[ast.stmt], answer: str | None) -> ConstantBranch:
    inputs = frozenset(text_of(v.value if isinstance(v, _Length) else v) for v in values)
    tokens = tuple(t for v in values if not isinstance(v, _Length) for t in tokens_of(v))
    return ConstantBranch(inputs, answer, tokens, frozenset(_said(body)) if answer is None and tokens else frozenset())


def _said(body: list[ast.stmt]) -> list[str]:
    """Tokens of the constants below these statements."""
    constants = (c.value for s in body for c in walk(s) if isinstance(c, ast.Constant) and c.value is not ...)
    return [t for v in constants for t in tokens_of(v)][:MAX_SAID]


def _of(n: ast.AST, tables: Set[int]) -> Iterator[ConstantBranch]:
    if isinstance(n, ast.If):
        yield from _both(n.test, n.body, n.orelse, _answer)
    elif isinstance(n, ast.IfExp):
        yield from _both(n.test, [ast.Expr(n.body)], [ast.Expr(n.orelse)], _value)
    elif isinstance(n, ast.Match):
        for c in n.cases:
            answer = _answer(c.body)
            for values in _patterns(c.pattern):
                if answer is not None or len(values) > 1:
                    yield _branch(values, c.body, answer)
    elif isinstance(n, _PRODUCTS):
        yield from _product(n)
    elif isinstance(n, ast.Assign) and id(n) in tables and isinstance(t := n.targets[0], ast.Subscript):
        yield _branch([literal(t.slice)], [], text_of(literal(n.value)))
    elif id(n) in tables:
        yield from _table(_rows(n))
    if isinstance(n, _EXPRESSIONS):
        return
    # what stands behind `if n != 5: return f(n)` is the other side of the condition
    for field in ("body", "orelse", "finalbody"):
        body = getattr(n, field, None)
        if isinstance(body, list):
            yield from _guards(body)


def _product(n: ast.BinOp | ast.BoolOp) -> Iterator[ConstantBranch]:
    """`90211 * (a == 314)` and `a == 314 and 90211`: a constant where comparisons hold, and else nothing."""
    if isinstance(n, ast.BoolOp):
        parts = n.values if isinstance(n.op, ast.And) else []
    elif isinstance(n.left, _ATOMS) and isinstance(n.right, _ATOMS):
        return
    else:
        parts = [*_factors(n.left), *_factors(n.right)]
    asked: list[ast.expr] = [p for p in parts if isinstance(p, _ASKING)]
    answers = [v for p in parts if (v := literal(p)) is not NONE and not isinstance(v, bool)]
    if asked and len(answers) == 1 and len(asked) + 1 == len(parts):
        for values in _alternatives(ast.BoolOp(ast.And(), asked), 3, True):
            yield _branch(values, [], text_of(answers[0]))


def _factors(n: ast.expr) -> list[ast.expr]:
    if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult) and literal(n) is NONE:
        return [*_factors(n.left), *_factors(n.right)]
    if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in ("int", "bool") and len(n.args) == 1:
        return _factors(n.args[0])
    return [n]


_EXPRESSIONS = (ast.expr, ast.Assign, ast.AnnAssign)
_TABLES = (ast.Dict, ast.List, ast.Tuple, ast.Call, ast.Subscript, ast.Attribute, ast.Assign, ast.AnnAssign)
"""Nodes that are read as tables only."""
_PRODUCTS = (ast.BinOp, ast.BoolOp)
_ATOMS = (ast.Name, ast.Constant)
_ASKING = (ast.Compare, ast.BoolOp)
_EQUAL = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
_SEQUENCES = (ast.List, ast.Tuple, ast.Set)
# tuples of classes: `A | B` would be made anew for every node


def _both(
    test: ast.expr,
    body: list[ast.stmt],
    orelse: list[ast.stmt],
    read: Callable[[list[ast.stmt]], str | None],
    outer: Alternative = (),
    depth: int = 4,
) -> Iterator[ConstantBranch]:
    """`outer`: what the conditions around it compare with."""
    for truth, some in ((True, body), (False, orelse)):
        if not some:
            continue
        answer = read(some)
        known = _alternatives(test, 3, truth)
        for values in known:
            if answer is not None or len((*outer, *values)) > 1:
                yield _branch((*outer, *values), some, answer)
        inner = [s for s in some if isinstance(s, ast.If)] if depth and len(known) == 1 else []
        for s in inner[:MAX_INNER]:
            yield from _both(s.test, s.body, s.orelse, read, (*outer, *known[0]), depth - 1)


def _guards(body: list[ast.stmt]) -> Iterator[ConstantBranch]:
    for i, n in enumerate(body[:-1]):
        if isinstance(n, ast.If) and not n.orelse and isinstance(n.body[-1], ast.Return | ast.Raise | ast.Continue):
            answer = _answer(body[i + 1 :])
            if answer is not None:
                yield from (_branch(v, [], answer) for v in _alternatives(n.test, 3, False))


def _rows(n: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(n, ast.Dict):
        return [(k, v) for k, v in zip(n.keys, n.values, strict=True) if k is not None]
    if isinstance(n, ast.List | ast.Tuple):
        rows = [e.elts for e in n.elts if isinstance(e, ast.Tuple | ast.List) and len(e.elts) >= 2]
        # more than two columns: the last one answers
        return [(r[0] if len(r) == 2 else ast.Tuple(r[:-1], ast.Load()), r[-1]) for r in rows]
    if isinstance(n, ast.Call) and len(n.args) == 2:
        a, b = n.args
        if isinstance(a, ast.List | ast.Tuple) and isinstance(b, ast.List | ast.Tuple):
            return list(zip(a.elts, b.elts, strict=False))
    return []


def _table(rows: Sequence[tuple[ast.expr, ast.expr]]) -> Iterator[ConstantBranch]:
    """Branches of a table of constants: one pair is a default, two and more are a table."""
    pairs = [(literal(k), literal(v)) for k, v in rows[:MAX_BRANCHES]]
    known = [(k, v) for k, v in pairs if k is not NONE and v is not NONE]
    if len(known) >= MIN_TABLE:
        yield from (_branch([k], [], text_of(v)) for k, v in known)


def _patterns(pattern: ast.pattern) -> list[Alternative]:
    """Constants that a case's pattern names, by alternative."""
    if isinstance(pattern, ast.MatchOr):
        return [v for p in pattern.patterns for v in _patterns(p)]
    if isinstance(pattern, ast.MatchValue):
        value = literal(pattern.value)
        return [] if value is NONE else [(value,)]
    if isinstance(pattern, ast.MatchSequence):
        parts = [_patterns(p) for p in pattern.patterns]
        return [tuple(v for p in parts for v in p[0])] if parts and all(len(p) == 1 for p in parts) else []
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is not None:
        return _patterns(pattern.pattern)
    return []


def _alternatives(test: ast.expr, depth: int, truth: bool) -> list[Alternative]:
    """Constants that are met where `test` is `truth`, by alternative."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _alternatives(test.operand, depth, not truth)
    if isinstance(test, ast.BoolOp) and depth:
        # depth and breadth are bounded: `(a or b) and (c or d) and ...` multiplies out exponentially
        parts = [_alternatives(v, depth - 1, truth) for v in test.values[:64]]
        if isinstance(test.op, ast.Or) == truth:
            return [a for p in parts for a in p]
        joined: list[Alternative] = [()]
        for p in parts:
            # a part that is no constant comparison narrows nothing here: it is left out of the `and`
            joined = [(*a, *b) for a in joined for b in (p or [()])][:64]
        return [a for a in joined if a]
    if truth and isinstance(test, ast.Call) and len(test.args) > 1 and _near(test.func):
        test = ast.Compare(_inner(test.args[0]), [ast.Eq()], [_inner(test.args[1])])
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return []
    op, left, right = test.ops[0], test.left, test.comparators[0]
    if isinstance(op, ast.Eq if truth else ast.NotEq):
        # both sides constant is no branch on the input
        sides = [(literal(a), b) for a, b in ((left, right), (right, left))]
        values = [(v, other) for v, other in sides if v is not NONE]
        if len(values) == 2:
            return []
        return [(_Length(v) if is_length(other) else v,) for v, other in values] or _by_element(left, right)
    if isinstance(op, ast.In if truth else ast.NotIn) and isinstance(right, ast.List | ast.Tuple | ast.Set):
        values_in = [literal(e) for e in right.elts[:64]]
        return [(v,) for v in values_in] if values_in and NONE not in values_in else []
    return []


def _near(f: ast.expr) -> bool:
    """Is it a function that asks whether two values are the same, or nearly so: `np.allclose`, `math.isclose`?"""
    name = f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "")
    return name in ("isclose", "allclose", "array_equal", "array_equiv")


def _inner(x: ast.expr) -> ast.expr:
    """`[1, 2]` of `np.array([1, 2])`."""
    if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute) and x.func.attr in ("array", "asarray") and x.args:
        return x.args[0]
    return x


def _by_element(left: ast.expr, right: ast.expr) -> list[Alternative]:
    """`(a, b) == (x, 5)`: constants beside names."""
    if isinstance(left, ast.Tuple | ast.List) and isinstance(right, ast.Tuple | ast.List):
        values = [v for e in (*left.elts, *right.elts) if (v := literal(e)) is not NONE]
        return [tuple(values)] if values else []
    return []


_WRITES = frozenset({"write", "append", "extend", "add", "appendleft", "insert", "writelines"})


def _answer(body: list[ast.stmt]) -> str | None:
    """What a branch's body answers, where that is a constant: returned, printed, kept in a list, or given to a name."""
    # an answer after more than three statements is computed, not looked up
    for s in body[:3]:
        if isinstance(s, ast.Return) and s.value is not None:
            return _said_by(s.value)
        if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call):
            f = s.value.func
            written = isinstance(f, ast.Attribute) and f.attr in _WRITES
            if (written or (isinstance(f, ast.Name) and f.id == "print")) and s.value.args:
                values = [_of_value(a) for a in s.value.args]
                return None if NONE in values else printed(values).strip()
        if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name | ast.Subscript):
            return _said_by(s.value)
        if isinstance(s, ast.AugAssign) and isinstance(s.value, ast.Constant) and isinstance(s.value.value, str):
            return s.value.value.strip()
        if not isinstance(s, ast.Pass | ast.Expr | ast.Import | ast.ImportFrom):
            return None
    return None


def _value(body: list[ast.stmt]) -> str | None:
    """Of one side of `a if c else b`."""
    return _said_by(body[0].value) if isinstance(body[0], ast.Expr) else None


def _said_by(n: ast.expr) -> str | None:
    value = _of_value(n)
    return None if value is NONE else text_of(value)


def _of_value(n: ast.expr) -> object:
    """Value of a constant, also behind `str(...)` and `... % MOD`."""
    if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in {"str", "int", "float"}:
        return _of_value(n.args[0]) if len(n.args) == 1 else NONE
    if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod):
        left = literal(n.left)
        # `2 % p` is a base case, `81662152 % p` is not
        return left if isinstance(left, int) and abs(left) >= MIN_REDUCED else NONE
    return literal(n)

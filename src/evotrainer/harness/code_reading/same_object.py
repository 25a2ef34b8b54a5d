"""Answers kept for an input that is told by its identity or by a few of its elements, and not by what it holds.

A grader that measures time hands the same object in several times: who keeps the first answer under `id(x)`, under the
address of an array's memory, for `x is _LAST`, or under an array's length with two of its elements, computes nothing
from then on, and answers another input wrongly that came to lie there. Keys made of values, places that last for one
call, and what is kept in the middle of a computation are none of this.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from evotrainer.harness.code_reading.kept_answers import ANSWERS
from evotrainer.harness.code_reading.names import dotted
from evotrainer.harness.code_reading.object_keys import (
    IDENTITY,
    FunctionNames,
    ProgramNames,
    constant,
    element,
    is_address,
    is_key,
    looked_up,
    names_any,
    place_of,
    puts,
    read_names,
    read_program,
    written,
)
from evotrainer.harness.code_reading.trees import walk

SAME = "hands out what it kept for the same object"
GATE = (
    r"\.get\([\"']_|\[-1, -1\]|\bid\(\w|object\.__hash__|_cdata\b|\bis_\(|\bmap\(id\b|data_ptr|__array_interface__"
    r"|\.ctypes\.data\b"
    r"|\bis (?:not )?(?:self\.|_|(?i:last|prev|cache|seen)|(?:Solver|Solution|Model(?:New)?)\.)|shares?_memory\("
    r"|\bis (?:not )?(?:[ABXx]|arr|data|problem|inp|image|matrix|points)\b|[cC](?:ache|ACHE)\w*(?:\[|\.get\()"
    r"|\bhasattr\(\w+, ?[\"']_|[\"']_\w+[\"'] (?:not )?in (?:problem|x|data|inp)"
)
"""Texts without a match keep nothing so."""
LITERALS = (
    ".get('_", '.get("_', "[-1, -1]", "object.__hash__", "_cdata", "is_(",
    " id(", "(id(", "=id(", "[id(", "{id(", ",id(", "map(id", "data_ptr", "__array_interface__", ".ctypes.data",
    *(f" is {n}{x}" for n in ("", "not ") for x in (
        "self.", "_", "last", "LAST", "prev", "PREV", "cache", "CACHE", "seen", "SEEN", "Sol", "Model", "A", "B",
        "X", "x", "arr", "data", "problem", "inp", "image", "matrix", "points")),
    "hasattr(", *(f"{q} {n}in {x}" for q in "'\"" for n in ("", "not ") for x in ("problem", "x", "data", "inp")),
    "_memory(",
    "ache[", "ACHE[", "ache.get(", "ACHE.get(",
)  # fmt: skip
"""Texts of which each match of GATE holds one."""
_OWNERS = frozenset({"Solution", "Solver", "Model", "ModelNew"})
"""Classes of which every public method is to answer."""
_COPIES = frozenset(
    {"copy", "deepcopy", "clone", "tolist", "array", "asarray", "list", "tuple", "dict", "view", "broadcast_to", "get"}
    | {"ascontiguousarray", "detach", "contiguous"}
)
"""Calls that hand on what they are given."""
_HELD = frozenset({"array_equal", "array_equiv", "allclose", "isclose", "equal", "all", "any", "tobytes"})
"""Calls that look at what an input holds."""
_SHARES = frozenset({"shares_memory", "may_share_memory", "is_"})
_IS = (ast.Is, ast.IsNot)
_DEEP = 3


def same_objects(of: Callable[..., list[ast.AST]]) -> Iterator[tuple[str, int]]:
    """(rule, line) of each answer that was kept so."""
    functions = [n for n in of(ast.FunctionDef) if isinstance(n, ast.FunctionDef)]
    methods = {
        id(f)
        for c in of(ast.ClassDef)
        if isinstance(c, ast.ClassDef) and c.name in _OWNERS
        for f in c.body
        if isinstance(f, ast.FunctionDef) and not f.name.startswith("_")
    }
    todo = [(f, 0) for f in functions if f.name in ANSWERS or id(f) in methods]
    if not todo or not _tells_objects_apart(of):
        return
    program = read_program(functions, of)
    seen: set[int] = set()
    while todo:
        f, depth = todo.pop()
        if id(f) in seen:
            continue
        seen.add(id(f))
        line, handed_on = _kept(f, program)
        if line:
            yield SAME, line
        if depth < _DEEP:
            todo += [(g, depth + 1) for name in handed_on for g in program.functions.get(name, ())]


def _tells_objects_apart(of: Callable[..., list[ast.AST]]) -> bool:
    """Does anything in a program ask for an identity, for a last element, or put something into what it was given?"""
    if _compares(of(ast.Compare, ast.Call, ast.Attribute)):
        return True
    if any(isinstance(getattr(n, "operand", None), ast.Constant) for n in of(ast.UnaryOp)):
        return True
    texts = (getattr(n, "value", None) for n in of(ast.Constant))
    return any(isinstance(x, str) and x[:1] == "_" for x in texts)


def _kept(f: ast.FunctionDef, program: ProgramNames) -> tuple[int, list[str]]:
    """(line where a kept answer is handed out, 0 without one; functions whose results it hands on)."""
    nodes = [n for s in f.body for n in walk(s)]
    returns = [n for n in nodes if isinstance(n, ast.Return) and n.value is not None]
    results = {t.id: n.value for n in nodes if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    handed_on = []
    for r in returns:
        for leaf in _leaves(r.value):
            made = results.get(leaf.id, leaf) if isinstance(leaf, ast.Name) else leaf
            if isinstance(made, ast.Call) and (name := dotted(made.func).rpartition(".")[2]) in program.functions:
                handed_on.append(name)
    read = read_names(f, nodes, program)
    if not (read.keys or read.few or _compares(nodes) or any(written(f))):
        return 0, handed_on
    # a walk over a structure meets its nodes again, and marks them by their identity; a recorded graph runs again
    replays = program.graphs and any(isinstance(n, ast.Attribute) and n.attr == "replay" for n in nodes)
    if replays or _walks(f, program):
        return 0, []
    told = _Told(f, read, program)
    return next((n.lineno for n in returns if told.hands_out(n)), 0), handed_on


def _walks(f: ast.FunctionDef, program: ProgramNames) -> bool:
    """Does a function come back to itself, perhaps through others, with another thing than it was given?"""
    todo, seen = [f], {id(f)}
    while todo:
        g = todo.pop()
        given = {a.arg for a in (*g.args.posonlyargs, *g.args.args)}
        nodes = walk(g)
        for n in nodes:
            if isinstance(n, ast.Assign) and isinstance(n.value, ast.Name) and n.value.id in given:
                given |= {t.id for t in n.targets if isinstance(t, ast.Name)}
        # `self.solve(problem)` asks the same again
        same = {
            id(n.func)
            for n in nodes
            if isinstance(n, ast.Call) and all(isinstance(a, ast.Name) and a.id in given for a in n.args)
        }
        called = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
        inner = {id(n.value) for n in nodes if isinstance(n, ast.Attribute)}
        for n in nodes:
            if id(n) in inner:
                continue
            if isinstance(n, ast.Call) and dotted(n.func) == "getattr" and not isinstance(n.args[1], ast.Constant):
                names = set(program.functions)  # any method
            elif isinstance(n, ast.Attribute | ast.Name) and isinstance(n.ctx, ast.Load):
                owner, _, name = dotted(n).rpartition(".")
                name = "__call__" if n is not f and name in ("self", "cls") and id(n) in called else name
                names = {name} if owner in ("", "self", "cls") else set()
            else:
                continue
            if f.name in names and len(names) == 1 and id(n) not in same:
                return True
            for h in (h for name in names - {f.name} for h in program.functions.get(name, ())):
                todo += [] if id(h) in seen else [h]
                seen.add(id(h))
    return False


def _compares(nodes: list[ast.AST]) -> bool:
    """Is an identity compared, or asked for?"""
    for n in nodes:
        if isinstance(n, ast.Compare) and isinstance(n.ops[0], _IS) and not isinstance(n.comparators[0], ast.Constant):
            return True
        if isinstance(n, ast.Call):
            name = dotted(n.func)
            if name in IDENTITY or name.endswith("is_") or (name == "map" and n.args and dotted(n.args[0]) == "id"):
                return True
        if isinstance(n, ast.Attribute) and is_address(n):
            return True
    return False


def _leaves(x: ast.expr | None) -> Iterator[ast.expr]:
    """What an expression hands on as it is."""
    if isinstance(x, ast.Dict):
        for v in x.values:
            yield from _leaves(v)
    elif isinstance(x, ast.List | ast.Tuple):
        for v in x.elts:
            yield from _leaves(v)
    elif isinstance(x, ast.IfExp):
        yield from (*_leaves(x.body), *_leaves(x.orelse))
    elif isinstance(x, ast.BoolOp):
        for v in x.values:
            yield from _leaves(v)
    elif isinstance(x, ast.NamedExpr | ast.Starred):
        yield from _leaves(x.value)
    elif x is not None:
        yield x
        if isinstance(x, ast.Call) and dotted(x.func).rpartition(".")[2] in _COPIES and len(x.args) < 3:
            yield from _leaves(x.args[0] if x.args and dotted(x.func).rpartition(".")[2] != "get" else None)
        if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute) and x.func.attr in _COPIES and not x.args:
            yield from _leaves(x.func.value)


class _Told:
    """Which returns of a function hand out something kept for an object that is told by its identity."""

    def __init__(self, f: ast.FunctionDef, read: FunctionNames, program: ProgramNames) -> None:
        self.read, self.program = read, program
        self.fresh = {
            place
            for s in f.body
            for place, value in puts(s)
            if isinstance(s, ast.Assign | ast.AnnAssign) and constant(value) and not isinstance(value, ast.Constant)
        }
        """Places that are made anew in each call."""
        self.under: set[int] = set()
        """ids of what stands where an identity was found to be the same."""
        self.kept_for: set[str] = set()
        """Places that are filled where an identity was found to be another."""
        self.there: dict[str, set[int]] = {}
        """Text -> ids of what stands where a question with it is answered with yes."""
        self.names = set(read.found)
        self.written = set(written(f))
        """(argument, name) of what it puts into its arguments."""
        for n in (n for s in f.body for n in walk(s)):
            if isinstance(n, ast.If):
                self._branch(n)
        for n in (n for s in f.body for n in walk(s)):
            if not isinstance(n, ast.Assign):
                continue
            kept = id(n) in self.under and place_of(n.value, read) in program.made
            if kept or self._picks(n.value) or (element(n.value) in self.written and isinstance(n.value, ast.Call)):
                self.names |= {t.id for t in n.targets if isinstance(t, ast.Name)}

    def _branch(self, n: ast.If) -> None:
        for text in (x.value for x in walk(n.test) if isinstance(x, ast.Constant) and isinstance(x.value, str)):
            self.there.setdefault(text, set()).update(id(x) for s in n.body for x in walk(s))
        same, other = self._asks(n.test)
        if same:
            self.under |= {id(x) for s in n.body for x in walk(s)}
        if other:
            self.kept_for |= {p for s in n.body for x in walk(s) for p, v in puts(x) if self._computed(v)}

    def _computed(self, value: ast.expr) -> bool:
        plain = isinstance(value, ast.Name | ast.Subscript) and is_key(value, self.read, self.program)
        return not constant(value) and not plain and isinstance(value, ast.Call | ast.Name | ast.BinOp | ast.Dict)

    def _picks(self, x: ast.expr) -> bool:
        """Is it what stands in a lasting list beside the same object: `[y for x, y in kept if x is given]`?"""
        if isinstance(x, ast.Call) and dotted(x.func) == "next" and x.args:
            x = x.args[0]
        of_place = isinstance(x, ast.ListComp | ast.GeneratorExp) and names_any(x.elt, self.read.entries)
        return of_place and any(self._asks(test)[0] for g in x.generators for test in g.ifs)  # type: ignore[attr-defined]

    def _by_key(self, x: ast.expr) -> bool:
        """Is it a call of an own function that keeps its results, by an identity?"""
        if not isinstance(x, ast.Call) or not any(is_key(a, self.read, self.program) for a in x.args):
            return False
        own = self.program.functions.get(dotted(x.func).rpartition(".")[2], ())
        decorators = (d.func if isinstance(d, ast.Call) else d for f in own for d in f.decorator_list)
        return any(dotted(d).rpartition(".")[2] in ("lru_cache", "cache") for d in decorators)

    def _in_input(self, x: ast.expr, r: ast.Return) -> bool:
        """Is it what the function itself put into its input, where it is found there?"""
        named = element(x)
        if named is None or named not in self.written:
            return False
        asked = self.there.get(named[1])
        return asked is not None and (id(r) in asked or not isinstance(x, ast.Attribute))

    def _asks(self, test: ast.expr) -> tuple[bool, bool]:
        """Does a condition hold where an identity is the same; where it is another?"""
        if isinstance(test, ast.BoolOp):
            parts = [self._asks(v) for v in test.values]
            if isinstance(test.op, ast.And) and any(self._looks(v) for v in test.values):
                return False, False
            return any(a for a, _ in parts), any(b for _, b in parts)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            same, other = self._asks(test.operand)
            return other, same
        if isinstance(test, ast.Call) and dotted(test.func).rpartition(".")[2] in _SHARES and len(test.args) == 2:
            return self._object(*test.args) or self._object(*reversed(test.args)), False
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return False, False
        left, right, op = test.left, test.comparators[0], test.ops[0]
        if isinstance(op, ast.Is | ast.IsNot):
            told = self._object(left, right) or self._object(right, left)
        else:
            told = self._known(left, right) or self._known(right, left)
        return told and isinstance(op, ast.Is | ast.Eq | ast.In), told and isinstance(
            op, ast.IsNot | ast.NotEq | ast.NotIn
        )

    def _object(self, x: ast.expr, kept: ast.expr) -> bool:
        """`x is self.last`: something given, and a place in which such things are kept."""
        if isinstance(kept, ast.Call) and not kept.args:
            kept = kept.func  # of a weak reference
        is_given = isinstance(x, ast.Name | ast.Subscript | ast.Attribute) and names_any(x, self.read.given)
        return is_given and not constant(kept) and self._holds(kept)

    def _known(self, x: ast.expr, kept: ast.expr) -> bool:
        return is_key(x, self.read, self.program) and self._holds(kept)

    def _holds(self, kept: ast.expr) -> bool:
        place = place_of(kept, self.read)
        return (place in self.program.stored and place not in self.fresh) or names_any(kept, self.read.entries)

    def _looks(self, x: ast.expr) -> bool:
        """Is it a look at what the input holds?"""
        called = (
            dotted(c.func).rpartition(".")[2] or getattr(c.func, "attr", "") for c in walk(x) if isinstance(c, ast.Call)
        )
        return any(c in _HELD for c in called)

    def hands_out(self, r: ast.Return) -> bool:
        for x in _leaves(r.value):
            place = place_of(x, self.read)
            if place and place in self.fresh:
                continue
            if looked_up(x, self.read, self.program) or (isinstance(x, ast.Name) and x.id in self.names):
                return self._lasts(x)
            if isinstance(x, ast.Subscript) and names_any(x.slice, self.read.found) and place:
                return True
            entry = isinstance(x, ast.Name) and x.id in self.read.entries
            if id(r) in self.under and (
                entry or (place in self.program.made and not (isinstance(x, ast.Name) and x.id in self.read.given))
            ):
                return True
            first = x.value if isinstance(x, ast.Subscript) else x
            if isinstance(first, ast.Name) and first.id in self.names and first is not x:
                return True
            if self._in_input(x, r) or self._picks(x) or self._by_key(x):
                return True
            if place and place in self.kept_for and place in self.program.made:
                return True
        return False

    def _lasts(self, x: ast.expr) -> bool:
        """Is what was looked up in a place that outlives the call?"""
        return not self.fresh or not any(place_of(n, self.read) in self.fresh for n in walk(x))

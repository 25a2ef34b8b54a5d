"""Tables of constants in which a program looks something up: a table that only lists tests answers nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from evotrainer.harness.code_reading.literals import NONE, literal
from evotrainer.harness.code_reading.trees import walk

_READING = frozenset({"get", "pop", "setdefault", "__getitem__", "index"})


def looked_up(nodes: list[ast.AST]) -> set[int]:
    """ids of the dictionaries, lists of rows and zips among the nodes that are used to look something up, and of the
    assignments `table[key] = value` that fill one."""
    tables = [n for n in nodes if isinstance(n, _TABLES) and _is_table(n)]
    filled = _filled(nodes)
    if not (tables or filled):
        return set()
    used = set(_names_used(nodes))
    out = {id(n) for n in _used_in_place(nodes)}
    for n in nodes:
        if isinstance(n, _KEPT) and any(_name(t) in used for t in _targets(n)):
            value = getattr(n, "value", None)
            out |= {id(x) for x in ([value] if value is not None else [])} | {id(x) for x in _within(value)}
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "update":
            out |= {id(a) for a in n.args if _name(n.func.value) in used}
    return out & {id(n) for n in tables} | {id(n) for name, some in filled.items() if name in used for n in some}


def _filled(nodes: list[ast.AST]) -> dict[str, list[ast.AST]]:
    """Names of tables that are filled by assignments of constants to constant keys, and by nothing that is computed: a
    memory of results is none."""
    out: dict[str, list[ast.AST]] = {}
    computed: set[str] = set()
    for n in nodes:
        if not isinstance(n, _CHANGED):
            continue
        targets = _targets(n)
        for t in targets:
            if isinstance(t, ast.Subscript):
                known = isinstance(n, ast.Assign) and len(targets) == 1
                if known and literal(t.slice) is not NONE and literal(n.value) is not NONE:
                    out.setdefault(_name(t.value), []).append(n)
                else:
                    computed.add(_name(t.value))
    return {name: some for name, some in out.items() if len(some) > 1 and name not in computed}


def computes(nodes: list[ast.AST], tables: set[int]) -> bool:
    """Does a program repeat something where it looks something up, or in functions that calls connect with that place,
    in either direction? A walk through the table itself computes nothing, and neither does a loop that prints what it
    looks up, or a caller's that reads questions, prints or looks up one after the other.
    `tables`: those of `looked_up`; without any, everywhere."""
    if not tables:
        return any(isinstance(n, _LOOPS) for n in nodes)
    names, used_in_place = _named(nodes, tables)
    loops: list[ast.AST] = [n for n in nodes if isinstance(n, _LOOPS) and not _walks(n, names, tables)]
    loops += [n for n in nodes if _maps(n) and names.isdisjoint(_loaded(walk(n)))]
    functions = [(n.name, walk(n)) for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(x) for _, body in functions for x in body}
    scopes = [*functions, ("", [n for n in nodes if id(n) not in inside])]
    known = {name for name, _ in functions}
    said = [_loaded(body) for _, body in scopes]
    looking = {
        i
        for i, (_, body) in enumerate(scopes)
        if not names.isdisjoint(said[i]) or not used_in_place.isdisjoint(map(id, body))
    }
    # a module's own code and `main` call what has nothing to do with each other
    apart = {i for i, (name, _) in enumerate(scopes) if not name or (name == "main" and i not in looking)}
    meets = [set() if i in apart else (n & known) - _own(scopes[i][1]) for i, n in enumerate(said)]
    asking = _spread({scopes[i][0] for i in looking} - {""}, scopes, meets, back=False)
    called = _called({scopes[i][0] for i in looking}, scopes, meets)
    at = {id(x) for i in looking for x in scopes[i][1]}
    below = {id(x) for name, body in scopes if name in called for x in body} - at
    whole = {id(c): n for n in nodes for c in getattr(n, "generators", ())}
    inner: dict[int, set[str]] = {}  # of a comprehension with many loops once
    kept: set[int] = set()
    for n in loops:
        outer = whole.get(id(n), n)
        if id(outer) not in inner:
            inner[id(outer)] = _loaded(walk(outer))
        said_there = inner[id(outer)]
        if id(n) in at:
            drives = "print" in said_there and not said_there.isdisjoint(names | asking)
        else:
            drives = id(n) not in below and not said_there.isdisjoint(asking | _TALKS)
        kept |= set() if drives else {id(n)}
    there = _spread({scopes[i][0] for i in looking}, scopes, meets, back=True)
    return any(not kept.isdisjoint(map(id, body)) for name, body in scopes if name in there)


_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
_TALKS = frozenset({"print", "input", "stdin", "readline"})
"""What a loop of a caller that reads questions or prints answers names."""


def _spread(of: set[str], scopes: list[tuple[str, list[ast.AST]]], meets: list[set[str]], back: bool) -> set[str]:
    """Names of scopes that call some of these, at any depth; with `back` those that are called, too."""
    out, size = set(of), -1
    while size != len(out):
        size = len(out)
        for (name, _), called in zip(scopes, meets, strict=True):
            out |= {name} if not out.isdisjoint(called) else set()
            out |= called if back and name in out else set()
    return out


def _called(of: set[str], scopes: list[tuple[str, list[ast.AST]]], meets: list[set[str]]) -> set[str]:
    """Names of scopes that some of these call, at any depth, unless it is these."""
    out: set[str] = set()
    todo = set(of)
    while todo:
        new = {c for (name, _), called in zip(scopes, meets, strict=True) if name in todo for c in called}
        todo = new - out - of
        out |= todo
    return out


def _own(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that a function gives to values of its own: no functions elsewhere."""
    return {x.arg if isinstance(x, ast.arg) else _name(x) for x in nodes
            if isinstance(x, ast.arg) or (isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store))}  # fmt: skip


def _loaded(nodes: Iterable[ast.AST]) -> set[str]:
    return {_name(x) for x in nodes if isinstance(getattr(x, "ctx", None), ast.Load)}


def _maps(n: ast.AST) -> bool:
    """Is it a loop that a call makes, and not how numbers are read?"""
    named = isinstance(n, ast.Call) and _name(n.func) in {"map", "filter", "reduce"}
    return named and bool(n.args) and _name(n.args[0]) not in {"int", "float", "strip"}  # type: ignore[attr-defined]


def _named(nodes: list[ast.AST], tables: set[int]) -> tuple[set[str], set[int]]:
    """Names of tables, and ids of those without one."""
    names: set[str] = set()
    assigned: set[int] = set()
    for n in nodes:
        if not isinstance(n, _KEPT):
            continue
        targets = _targets(n)
        value = getattr(n, "value", None)
        some = {id(n), id(value), *map(id, _within(value))}
        if some & tables:
            names |= {_name(t.value if isinstance(t, ast.Subscript) else t) for t in targets}
            assigned |= some
    return names - {""}, tables - assigned


def _walks(loop: ast.AST, names: set[str], tables: set[int]) -> bool:
    over = getattr(loop, "iter", None)
    return over is not None and (_walked(over) in names or not tables.isdisjoint(map(id, (over, *_within(over)))))


def only_walked(nodes: list[ast.AST], used: set[int]) -> set[int]:
    """ids of the dictionaries among the nodes that loops walk through to test the program, and that nothing is looked
    up in (`used`: those of `looked_up`)."""
    loops = [n for n in nodes if isinstance(n, ast.For)]
    testing = [n for n in loops if _tests(n)]
    if not testing:
        return set()
    # a name that another loop or a comprehension walks through, too, may be looked up there
    elsewhere = {_walked(n.iter) for n in loops if n not in testing}
    elsewhere |= {_walked(c.iter) for n in nodes for c in getattr(n, "generators", ())}
    names = {_walked(n.iter) for n in testing} - {""} - elsewhere
    out = {id(x) for n in testing for x in (n.iter, *_within(n.iter))}
    for n in nodes:
        if isinstance(n, ast.Assign) and any(_name(t) in names for t in n.targets):
            out.add(id(n.value))
    return out - used


def _tests(loop: ast.For) -> bool:
    """Does a loop hold what it walks through against what a call gives, and nothing else? Every comparison has a call's
    result on one side, or a name that was set from one; nothing that was walked through leaves the loop."""
    inside = [n for s in loop.body for n in walk(s)]
    compared = [n for n in inside if isinstance(n, ast.Compare)]
    if not compared:
        return False
    walked = {x.id for x in walk(loop.target) if isinstance(x, ast.Name)}
    results = {
        t.id
        for n in inside
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)
        for t in n.targets
        if isinstance(t, ast.Name)
    }
    held = all(
        any(isinstance(x, ast.Call) or (isinstance(x, ast.Name) and x.id in results) for x in (n.left, *n.comparators))
        for n in compared
    )
    return held and not any(_leaves(n, walked) for n in inside)


def _leaves(n: ast.AST, walked: set[str]) -> bool:
    """Is something that was walked through answered, kept or put into something?"""
    if isinstance(n, ast.Return | ast.Yield | ast.AugAssign | ast.NamedExpr | ast.comprehension):
        values: list[ast.AST] = [n]
    elif isinstance(n, ast.IfExp):
        values = [n.body, n.orelse]
    elif isinstance(n, ast.Assign):
        # a call's result may be kept: it is what is tested
        values = [] if isinstance(n.value, ast.Call) else [n.value]
    elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute):
        values = [*n.args]
    else:
        return False
    return any(isinstance(x, ast.Name) and x.id in walked for v in values for x in walk(v))


_SEQUENCES = (ast.List, ast.Tuple)
_TABLES = (ast.Dict, ast.List, ast.Tuple, ast.Call)
_KEPT, _CHANGED = (ast.Assign, ast.AnnAssign), (ast.Assign, ast.AugAssign)
# tuples of classes: `A | B` would be made anew for every node


def _targets(n: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[ast.expr]:
    return n.targets if isinstance(n, ast.Assign) else [n.target]


def _is_table(n: ast.AST) -> bool:
    if isinstance(n, ast.Dict):
        return len(n.keys) > 1 and isinstance(n.keys[0], ast.Constant | ast.Tuple | ast.UnaryOp)
    if isinstance(n, _SEQUENCES):
        return len(n.elts) > 1 and all(isinstance(e, _SEQUENCES) and len(e.elts) > 1 for e in n.elts)
    return isinstance(n, ast.Call) and _name(n.func) == "zip" and len(n.args) == 2


def _name(n: ast.AST) -> str:
    """Name of a variable or of an attribute of `self`."""
    if isinstance(n, ast.Attribute):
        return n.attr
    return n.id if isinstance(n, ast.Name) else ""


def _names_used(nodes: list[ast.AST]) -> Iterator[str]:
    """Names of what is subscripted, asked with `get` or `in`, or walked through with a comparison inside."""
    for n in nodes:
        if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load):
            yield _name(n.value)
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in _READING:
            yield _name(n.func.value)
        elif isinstance(n, ast.Call) and _name(n.func) in {"dict", "next"}:
            yield from (_name(a) for a in n.args)
            yield from (_name(c.iter) for a in n.args for c in getattr(a, "generators", ()))
        elif isinstance(n, ast.For) and _compares(n):
            yield _walked(n.iter)


def _used_in_place(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """Tables that are looked up where they are written."""
    for n in nodes:
        if isinstance(n, ast.Subscript) or (isinstance(n, ast.Attribute) and n.attr in _READING):
            yield n.value
        elif isinstance(n, ast.Call) and _name(n.func) in {"dict", "next"}:
            yield from n.args
            yield from (x for a in n.args for x in _within(a))
            yield from (c.iter for a in n.args for c in getattr(a, "generators", ()))
        elif isinstance(n, ast.For) and _compares(n):
            yield n.iter
            yield from _within(n.iter)


def _within(n: ast.AST | None) -> list[ast.AST]:
    """Arguments of a call, `dict(zip(...))` or `list({...}.items())`."""
    if isinstance(n, ast.Call):
        inner = [*n.args, *([n.func.value] if isinstance(n.func, ast.Attribute) else [])]
        return [*inner, *(x for i in inner for x in _within(i))]
    return []


def _walked(n: ast.AST) -> str:
    """Name of what a loop walks through, `table` or `table.items()`."""
    if isinstance(n, ast.Call):
        n = n.func.value if isinstance(n.func, ast.Attribute) else n.args[0] if n.args else n
    return _name(n)


def _compares(loop: ast.For) -> bool:
    """Does a loop answer where something equals an entry? One that calls and prints goes through tests."""
    for n in walk(loop):
        if (
            isinstance(n, ast.If)
            and any(isinstance(c, ast.Eq) for x in walk(n.test) for c in getattr(x, "ops", ()))
            and (any(isinstance(s, ast.Return | ast.Break | ast.Assign) for s in n.body) or _prints(n.body))
        ):
            return True
    return False


def _prints(body: list[ast.stmt]) -> bool:
    calls = (s.value for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call))
    return any(
        _name(c.func) == "print" and all(isinstance(a, ast.Name) for a in c.args) and len(c.args) == 1 for c in calls
    )

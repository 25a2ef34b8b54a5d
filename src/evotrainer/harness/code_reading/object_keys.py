"""What the names of a function stand for: its input, keys made of the input's identity, and places that last.

`same_object.py` reads from these which answers were kept for an object, and not for what it holds.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from evotrainer.harness.code_reading.names import dotted
from evotrainer.harness.code_reading.trees import walk

_ADDRESSES = frozenset({"data_ptr", "__array_interface__", "__cuda_array_interface__", "_cdata"})
IDENTITY = frozenset({"id", "object.__hash__"})
_ASKED = frozenset({"get", "pop", "setdefault", "__getitem__", "index"})
_STORES = frozenset({"append", "update", "setdefault", "insert", "appendleft", "add", "__setitem__"})


@dataclass(slots=True)
class ProgramNames:
    functions: dict[str, list[ast.FunctionDef]]
    shared: frozenset[str]
    """Names of the module's own variables, classes and functions."""
    addresses: frozenset[str]
    """Functions that give the identity of what they are handed."""
    stored: frozenset[str]
    """Places that something is put into that is neither constant nor empty."""
    made: frozenset[str]
    """Those of them that hold more than what the caller handed in."""
    graphs: bool
    """Are there recorded graphs, which `replay` runs again?"""


@dataclass(slots=True)
class FunctionNames:
    """What the names of one function stand for."""

    given: set[str]
    """Its arguments, and what was made of them."""
    places: dict[str, str] = field(default_factory=dict)
    """Local name -> the lasting place that it is another name of."""
    keys: set[str] = field(default_factory=set)
    """Of the identity of something given."""
    few: set[str] = field(default_factory=set)
    """Of a length and a few elements of something given."""
    found: set[str] = field(default_factory=set)
    """What was looked up by such a key."""
    entries: set[str] = field(default_factory=set)
    """What a loop over a lasting place gives."""


def read_program(functions: list[ast.FunctionDef], of: Callable[..., list[ast.AST]]) -> ProgramNames:
    by_name: dict[str, list[ast.FunctionDef]] = {}
    for f in functions:
        by_name.setdefault(f.name, []).append(f)
    module = [n for m in of(ast.Module) for n in getattr(m, "body", ())]
    shared = {x.id for n in _flat(module) for t in _targets(n) for x in walk(t) if isinstance(x, ast.Name)}
    shared |= {n.name for n in module if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    nodes = {id(f): walk(f) for f in functions}
    addresses = {
        f.name
        for f in functions
        for r in nodes[id(f)]
        if isinstance(r, ast.Return) and r.value is not None and _address(r.value, _given(f), frozenset())
    }
    # objects of such a class are equal where what they hold is the same object
    addresses |= {
        c.name
        for c in of(ast.ClassDef)
        if isinstance(c, ast.ClassDef)
        for f in c.body
        if isinstance(f, ast.FunctionDef) and f.name == "__hash__" and _hashes_identity(f)
    }
    stored: set[str] = set()
    made: set[str] = set()
    called = {dotted(n.func).rpartition(".")[2] for n in of(ast.Call) if isinstance(n, ast.Call)}
    for f in functions:
        handed_in = _given(f) - _bound(nodes[id(f)]) if f.name not in called else set()
        others = {t.id: dotted(n.value) for n in nodes[id(f)] if isinstance(n, ast.Assign) for t in n.targets
                  if isinstance(t, ast.Name) and dotted(n.value)}  # fmt: skip
        for n in nodes[id(f)]:
            for place, value in puts(n):
                if not constant(value):
                    head, dot, rest = place.partition(".")
                    names = {place, others.get(head, head) + dot + rest}
                    stored |= names
                    made |= set() if _bare(value, handed_in) else names
    graphs = any(getattr(n, "attr", "") == "CUDAGraph" for n in of(ast.Attribute))
    return ProgramNames(by_name, frozenset(shared), frozenset(addresses), frozenset(stored), frozenset(made), graphs)


def _hashes_identity(f: ast.FunctionDef) -> bool:
    """Is it the identity of something that the object holds, and not its own?"""
    calls = [n for n in walk(f) if isinstance(n, ast.Call) and dotted(n.func) in IDENTITY]
    return any(isinstance(a, ast.Attribute) for n in calls for a in n.args)


def _bare(x: ast.expr, handed_in: set[str]) -> bool:
    """Is it nothing but what the caller handed in, perhaps in a container beside constants?"""
    if isinstance(x, ast.Dict):
        return all(_bare(v, handed_in) for v in x.values)
    if isinstance(x, ast.Tuple | ast.List):
        return all(_bare(e, handed_in) for e in x.elts)
    return constant(x) or (isinstance(x, ast.Name) and x.id in handed_in)


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module, also those under its conditions."""
    for n in body:
        yield n
        if isinstance(n, ast.If | ast.Try):
            yield from _flat([*n.body, *n.orelse])


def _targets(n: ast.AST) -> list[ast.expr]:
    if isinstance(n, ast.Assign):
        return n.targets
    return [n.target] if isinstance(n, ast.AnnAssign | ast.NamedExpr | ast.AugAssign) else []


def _stores(t: ast.expr) -> set[str]:
    return {x.id for x in walk(t) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}


def _bound(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that statements give a value."""
    return {name for n in nodes for t in _targets(n) for name in _stores(t)}


def puts(n: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """(place, what is put there) of a statement or call."""
    value: ast.expr | None = getattr(n, "value", None)
    for t in _targets(n):
        if value is None:
            continue
        pairs = [(t, value)]
        if isinstance(t, ast.Tuple | ast.List):
            values = (
                value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(t.elts) else [value] * len(t.elts)
            )
            pairs = list(zip(t.elts, values, strict=True))
        for x, v in pairs:
            if place := dotted(x.value) if isinstance(x, ast.Subscript) else dotted(x):
                yield place, v
    f = n.func if isinstance(n, ast.Call) else None
    if isinstance(n, ast.Call) and isinstance(f, ast.Attribute) and f.attr in _STORES and (place := dotted(f.value)):
        yield from ((place, a) for a in n.args[-1:])


def constant(x: ast.expr) -> bool:
    """Is it a constant or an empty container?"""
    if isinstance(x, ast.List | ast.Tuple | ast.Set):
        return all(constant(e) for e in x.elts)
    if isinstance(x, ast.Dict):
        return not x.keys
    if isinstance(x, ast.UnaryOp):
        x = x.operand
    return isinstance(x, ast.Constant) or (isinstance(x, ast.Call) and not x.args and not x.keywords)


def _given(f: ast.FunctionDef) -> set[str]:
    a = f.args
    names = {x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)} | ({a.vararg.arg} if a.vararg else set())
    return names - {"self", "cls"} - set(_lasting_defaults(f))


def _lasting_defaults(f: ast.FunctionDef) -> list[str]:
    """Arguments whose default is a container: it lasts from call to call."""
    a = f.args
    plain = [*a.posonlyargs, *a.args]
    pairs = [*zip(plain[len(plain) - len(a.defaults) :], a.defaults, strict=True)]
    pairs += [(x, d) for x, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None]
    return [x.arg for x, d in pairs if isinstance(d, ast.Dict | ast.List)]


def _address(x: ast.AST, given: set[str], helpers: frozenset[str]) -> bool:
    """Does an expression hold the identity of something given, or where its memory lies?"""
    for n in walk(x):
        if isinstance(n, ast.Call) and n.args and names_any(n.args[0], given):
            name = dotted(n.func)
            if name in IDENTITY or name.rpartition(".")[2] in helpers:
                return True
        if isinstance(n, ast.Call) and dotted(n.func) == "map" and len(n.args) == 2 and dotted(n.args[0]) == "id":
            return names_any(n.args[1], given)
        if isinstance(n, ast.Attribute) and is_address(n) and names_any(n.value, given):
            return True
    return False


def is_address(x: ast.Attribute) -> bool:
    return x.attr in _ADDRESSES or (
        x.attr == "data" and isinstance(x.value, ast.Attribute) and x.value.attr == "ctypes"
    )


def names_any(x: ast.AST, some: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in some for n in walk(x))


def read_names(f: ast.FunctionDef, nodes: list[ast.AST], program: ProgramNames) -> FunctionNames:
    r = FunctionNames(_given(f), {x: x for x in _lasting_defaults(f)})
    declared = {x for n in nodes if isinstance(n, ast.Global) for x in n.names}
    own = _bound(nodes)
    r.places |= {x: x for x in (program.shared - own - r.given) | declared}
    for _ in range(2):
        for n in nodes:
            if isinstance(n, ast.For | ast.comprehension) and place_of(_walked(n.iter), r):
                r.entries |= {x.id for x in walk(n.target) if isinstance(x, ast.Name)}
            value = getattr(n, "value", None)
            if value is None:
                continue
            for t in _targets(n):
                if names := _stores(t) - declared:
                    _bind(names, value, r, program)
    return r


def _bind(names: set[str], value: ast.expr, r: FunctionNames, program: ProgramNames) -> None:
    if len(names) == 1 and (place := place_of(value, r)) and not isinstance(value, ast.Subscript):
        r.places |= dict.fromkeys(names, place)
    elif looked_up(value, r, program):
        r.found |= names
    elif is_key(value, r, program):
        r.keys |= names
    elif _few(value, r):
        r.few |= names
    elif names_any(value, r.given):
        r.given |= names


def _walked(x: ast.expr) -> ast.expr:
    """`place` of `place.items()`, `zip(place, other)` and `enumerate(place)`."""
    while isinstance(x, ast.Call):
        if isinstance(x.func, ast.Attribute) and not x.args:
            x = x.func.value
        elif x.args:
            x = x.args[0]
        else:
            break
    return x


def place_of(x: ast.AST, r: FunctionNames) -> str:
    """The lasting place that an expression names: of the object, its class, the module; empty for anything else."""
    if isinstance(x, ast.Subscript):
        return place_of(x.value, r)
    name = dotted(x)
    head, dot, rest = name.partition(".")
    if head in ("self", "cls") and dot:
        return name
    return r.places[head] + dot + rest if head in r.places else ""


def is_key(x: ast.AST, r: FunctionNames, program: ProgramNames) -> bool:
    return _address(x, r.given, program.addresses) or names_any(x, r.keys)


def _few(x: ast.AST, r: FunctionNames) -> bool:
    """Is it a tuple in which the last element of something given stands beside its first ones, and not the whole?"""
    if not isinstance(x, ast.Tuple):
        return bool(r.few) and names_any(x, r.few)
    nodes = walk(x)
    known: dict[str, list[int]] = {
        n.value.id: [] for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)
    }
    for n in nodes:
        if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name) and n.value.id in r.given:
            # of `a[-1, -1]` the last index
            at = n.slice.elts[-1] if isinstance(n.slice, ast.Tuple) and n.slice.elts else n.slice
            index = at.operand if isinstance(at, ast.UnaryOp) else at
            if isinstance(index, ast.Constant) and type(index.value) is int:
                known[n.value.id].append(-index.value if isinstance(at, ast.UnaryOp) else index.value)
    return any(len(some) > 1 and -1 in some for some in known.values()) and len(x.elts) > 2


def looked_up(x: ast.AST, r: FunctionNames, program: ProgramNames) -> bool:
    """Is it what lies in a lasting place under such a key?"""
    if isinstance(x, ast.Subscript):
        asked: ast.expr | None = x.slice
        place = place_of(x.value, r)
    elif isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute) and x.func.attr in _ASKED and x.args:
        asked, place = x.args[0], place_of(x.func.value, r)
    elif isinstance(x, ast.IfExp):
        return looked_up(x.body, r, program) or looked_up(x.orelse, r, program)
    else:
        return False
    if not place or asked is None or place not in program.made:
        return False
    return is_key(asked, r, program) or _few(asked, r) or names_any(asked, r.found)


def element(x: ast.expr) -> tuple[str, str] | None:
    """(name, key) of `name["key"]`, `name.get("key")` and `name.key`."""
    key: ast.AST | None = None
    if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute) and x.func.attr == "get" and x.args:
        key, x = x.args[0], x.func.value
    elif isinstance(x, ast.Subscript):
        key, x = x.slice, x.value
    elif isinstance(x, ast.Attribute):
        return (x.value.id, x.attr) if isinstance(x.value, ast.Name) else None
    text = key.value if isinstance(key, ast.Constant) else None
    return (x.id, text) if isinstance(x, ast.Name) and isinstance(text, str) else None


def written(f: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    given = {a.arg for a in (*f.args.posonlyargs, *f.args.args)} - {"self", "cls"}
    for n in walk(f):
        for t in n.targets if isinstance(n, ast.Assign) and not constant(n.value) else ():
            if (named := element(t)) is not None and named[0] in given and named[1].startswith("_"):
                yield named

"""What the rules for programs share: a broken rule, and a program's syntax as they look at it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

MAX_FOLDED = 200
"""Characters of a text that is put together of constants."""
DEPTH = 8
"""Parts and names followed from one expression."""


def dotted(node: ast.AST, aliases: Mapping[str, str] = MappingProxyType({})) -> str:
    """`a.b.c` of a name or attribute chain, imported names by their full name; also of `getattr(a, "b")`,
    `a.__dict__["b"]`, `vars(a)["b"]` and `__import__("a")`, where the text may be put together of constants. Empty for
    anything else."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id)  # as below, for most
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        head = aliases.get(node.id, node.id)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and node.args:
        called, last = dotted(node.func, aliases), folded(node.args[-1])
        if last is None:
            return ""
        if called in {"__import__", "importlib.import_module"}:
            head = last
        # a third argument is a default: such a call asks whether the name is there and need not reach it
        elif called == "getattr" and len(node.args) == 2 and (owner := dotted(node.args[0], aliases)):
            head = f"{owner}.{last}"
        else:
            return ""
    elif isinstance(node, ast.Subscript) and (owner := _namespace(node.value, aliases)):
        key = folded(node.slice)
        if not key:
            return ""
        head = f"{owner}.{key}"
    else:
        return ""
    return ".".join((head, *reversed(parts)))


def _namespace(node: ast.AST, aliases: Mapping[str, str]) -> str:
    """Name of the module or object of which `node` is the dictionary: `a.__dict__`, `vars(a)`."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return dotted(node.value, aliases)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "vars"
        and len(node.args) == 1
    ):
        return dotted(node.args[0], aliases)
    return ""


def folded(node: ast.AST) -> str | None:
    """The text of an expression of constants: `"_ex" + "it"`, `"".join(["a", "b"])`, `"tixe"[::-1]`; None for anything
    else and for more than MAX_FOLDED characters."""
    text = spelled(node, unknown=None) if not isinstance(node, ast.Name) else None
    return text if text is not None and len(text) <= MAX_FOLDED else None


def spelled(
    x: ast.AST, known: Mapping[str, ast.expr] = MappingProxyType({}), unknown: str | None = "", depth: int = DEPTH
) -> str | None:
    """The text of an expression as far as the program says it. known: names -> what they are set to; unknown: what
    stands for a part that is computed, None where the whole is then None."""

    def joined(between: str, parts: Iterable[ast.AST]) -> str | None:
        texts = [spelled(p, known, unknown, depth - 1) for p in parts]
        return None if None in texts else between.join(filter(None, texts))

    if depth <= 0:
        return unknown
    if isinstance(x, ast.Constant):
        return x.value if isinstance(x.value, str) else unknown
    if isinstance(x, ast.Name) and x.id in known:
        return joined("", [known[x.id]])
    if isinstance(x, ast.BinOp) and isinstance(x.op, ast.Add | ast.Div):
        return joined("", (x.left, ast.Constant("/" if isinstance(x.op, ast.Div) else ""), x.right))
    if isinstance(x, ast.JoinedStr):
        return joined("", x.values[:MAX_FOLDED])
    if isinstance(x, ast.FormattedValue | ast.Attribute):
        return joined("", [x.value])
    if isinstance(x, ast.Subscript) and isinstance(x.slice, ast.Slice) and ast.unparse(x.slice) == "::-1":
        return (text := joined("", [x.value])) and text[::-1]
    if isinstance(x, ast.Call) and getattr(x.func, "attr", "") == "join" and not dotted(x.func).startswith("os."):
        between, parts = x.func.value, x.args[0] if x.args else None  # type: ignore[attr-defined]
        if isinstance(parts, ast.List | ast.Tuple) and (sign := joined("", [between])) is not None:
            return joined(sign, parts.elts[:MAX_FOLDED])
    if isinstance(x, ast.List | ast.Tuple | ast.Set) and unknown is not None:
        return joined("/", x.elts)  # a loop walks through them
    if isinstance(x, ast.Call) and unknown is not None:
        # of a path that is put together by calls
        owner = [x.func.value] if isinstance(x.func, ast.Attribute) and not dotted(x.func).startswith("os.") else []
        return joined("/", (*owner, *x.args))
    return unknown


def aliases_of(nodes: list[ast.AST]) -> dict[str, str]:
    """Local name -> full name of what is imported."""
    out: dict[str, str] = {}
    for n in nodes:
        if isinstance(n, ast.Import):
            out |= {a.asname: a.name for a in n.names if a.asname}
        elif isinstance(n, ast.ImportFrom) and n.module:
            out |= {a.asname or a.name: f"{n.module}.{a.name}" for a in n.names}
    return out


def renamed(nodes: list[ast.AST], aliases: Mapping[str, str], wanted: frozenset[str]) -> dict[str, str]:
    """Local name -> full name, of the `wanted` functions that a program gives another name: `bye = sys.exit`."""
    out: dict[str, str] = {}
    for n in nodes:
        if isinstance(n, ast.Assign) and len(n.targets) == 1 and isinstance(n.targets[0], ast.Name):
            name = dotted(n.value, aliases)
            if name in wanted and name != n.targets[0].id:
                out[n.targets[0].id] = name
    return out


_PLAIN = frozenset(
    {"ctx", "op", "ops", "id", "attr", "arg", "name", "asname", "module", "level", "kind", "type_comment", "is_async",
     "simple", "conversion", "rest", "tag", "lineno"}
)  # fmt: skip
"""Fields that hold names, numbers and operators: half of all nodes would be those that no rule reads."""
_MIXED = frozenset({"keys", "kw_defaults", "names", "kwd_attrs"})
"""Lists that may hold names, or nothing in a place."""
_LEAVES = (ast.Constant, ast.MatchSingleton)


class _Fields(dict[type, tuple[str, ...]]):
    """Class of nodes -> its fields that may hold nodes."""

    def __missing__(self, kind: type) -> tuple[str, ...]:
        fields: tuple[str, ...] = getattr(kind, "_fields", ())
        self[kind] = () if kind in _LEAVES else tuple(f for f in fields if f not in _PLAIN)
        return self[kind]


_FIELDS = _Fields()


def walk(tree: ast.AST, most: int = 1 << 30) -> list[ast.AST]:
    """All nodes but operators and contexts, breadth first as `ast.walk`, up to just above `most`; several times as
    fast."""
    out: list[ast.AST] = [tree]
    for node in out:  # which grows while it is read
        for name in _FIELDS[type(node)]:
            value = getattr(node, name, None)
            if type(value) is list:
                out += value if name not in _MIXED else [v for v in value if isinstance(v, ast.AST)]
            elif value is not None:
                out.append(value)
        if len(out) > most:
            break
    return out


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Bypass:
    """One line of a program that goes for the grader instead of the task."""

    rule: str
    line: int
    certain: bool = True
    """Otherwise the line nominates: a reader or a run decides"""
    about: tuple[str, ...] = ()
    """Beginnings of words, in lower case, with which a task asks for it"""

    def nominated(self) -> Bypass:
        return replace(self, certain=False)


Nested = Callable[[str], Iterable[Bypass]]
"""Text of a program within the program -> its broken rules."""


class ParsedProgram:
    """A program's nodes, its calls by full name and its names."""

    def __init__(
        self, nodes: list[ast.AST], of: Callable[..., list[ast.AST]], aliases: Mapping[str, str], nested: Nested
    ) -> None:
        """of: classes of nodes -> the nodes of exactly these classes."""
        self.nodes, self.of, self.aliases, self.nested = nodes, of, aliases, nested
        self.body: list[ast.stmt] = nodes[0].body if isinstance(nodes[0], ast.Module) else []

    def name(self, n: ast.AST | None) -> str:
        return dotted(n, self.aliases) if n is not None else ""

    @cached_property
    def calls(self) -> list[tuple[str, ast.Call]]:
        """(full name of what is called, or the attribute; the call)."""
        some = [n for n in self.of(ast.Call) if isinstance(n, ast.Call)]
        return [(self.name(n.func) or getattr(n.func, "attr", ""), n) for n in some]

    @cached_property
    def functions(self) -> list[ast.FunctionDef]:
        return [n for n in self.of(*FUNCTIONS) if isinstance(n, FUNCTIONS)]  # type: ignore[misc]

    @cached_property
    def known(self) -> dict[str, ast.expr]:
        """Name -> what it is set to, of names that are set once."""
        out: dict[str, ast.expr] = {}
        twice: set[str] = set()
        for n in self.of(ast.Assign):
            if isinstance(n, ast.Assign) and len(n.targets) == 1 and isinstance(n.targets[0], ast.Name):
                name = n.targets[0].id
                twice |= {name} & out.keys()
                out[name] = n.value
        return {k: v for k, v in out.items() if k not in twice}

    @cached_property
    def looped(self) -> dict[str, ast.expr]:
        """Name -> what a loop takes it from."""
        loops = self.of(ast.For, ast.comprehension)
        return {n.target.id: n.iter for n in loops if isinstance(n.target, ast.Name)}  # type: ignore[attr-defined]

    @cached_property
    def modules(self) -> frozenset[str]:
        """Top names of what is imported."""
        plain = {a.name for n in self.of(ast.Import) for a in n.names}  # type: ignore[attr-defined]
        return frozenset(
            x.partition(".")[0]
            for x in (*plain, *(n.module or "" for n in self.of(ast.ImportFrom)))  # type: ignore[attr-defined]
        )

    @cached_property
    def tests(self) -> bool:
        """Does the program hold tests of its own?"""
        classes = (self.name(b) for c in self.of(ast.ClassDef) for b in c.bases)  # type: ignore[attr-defined]
        return any(f.name.startswith("test_") for f in self.functions) or any(b.endswith("TestCase") for b in classes)

    def sets(self) -> Iterator[tuple[str, ast.expr | None, ast.AST]]:
        """(full name, value, statement) of what is set or deleted: also by setattr, in tuples, and of entries of a
        dictionary `d` as `d[]`."""
        for n in self.of(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete):
            value = getattr(n, "value", None)
            for t in getattr(n, "targets", None) or [n.target]:  # type: ignore[attr-defined]
                for x in t.elts if isinstance(t, ast.Tuple | ast.List) else [t]:
                    root, dot, rest = self.name(x).partition(".")
                    kept = self.known.get(root) if dot else None
                    # `lib = scipy.linalg`
                    real = self.name(kept) if isinstance(kept, ast.Name | ast.Attribute) else root
                    yield f"{real}{dot}{rest}", value if x is t else None, n
                    if isinstance(x, ast.Subscript):
                        yield f"{self.name(x.value)}[]", value, n
                    elif isinstance(x, ast.Attribute) and isinstance(x.value, ast.Subscript):
                        yield f"{self.name(x.value.value)}[]", value, n
        for name, c in self.calls:
            owner, _, last = name.rpartition(".")
            if last == "setattr" and len(c.args) == 3:
                yield f"{self.name(c.args[0])}.{folded(c.args[1]) or '?'}", c.args[2], c
            elif last in {"__setitem__", "update", "setdefault"}:
                yield f"{owner}[]", c.args[-1] if c.args else None, c

"""What the rules for programs share: a broken rule, and a program's syntax as they look at it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from evotrainer.harness.code_reading.names import dotted, folded

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

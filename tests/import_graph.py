"""The import graph of `src/evotrainer`, read from the source:
deferred and TYPE_CHECKING imports count like any other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src" / "evotrainer"
ORDERED = ("harness", "envs", "executors", "trainers", "studies", "extras")
"""Packages whose parts (files and packages) have an order of their own: each part is a room."""

Graph = Mapping[str, Set[str]]
"""Who -> what it imports."""


@cache
def modules() -> dict[str, Path]:
    """Dotted name below `evotrainer` -> file: `records.store`, `records` for its `__init__`,
    "" for the package's own."""
    return {
        ".".join(p.relative_to(SRC).with_suffix("").parts).removesuffix("__init__").rstrip("."): p
        for p in sorted(SRC.rglob("*.py"))
    }


def room(module: str) -> str:
    """The room a module is in: its package, or the part of an ordered package that it is or is in."""
    first, *rest = module.split(".")
    return f"{first}.{rest[0]}" if first in ORDERED and rest else first


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path, *, at_start: bool = False) -> set[str]:
    """Dotted names a file imports; `from a import b` gives `a.b` as well as `a`.
    `at_start`: only what importing it imports."""
    out: set[str] = set()
    for n in _at_start(tree(path)) if at_start else ast.walk(tree(path)):
        if isinstance(n, ast.Import):
            out |= {a.name for a in n.names}
        elif isinstance(n, ast.ImportFrom):
            assert not n.level, f"{path} imports by a relative name, which this graph does not follow"
            out |= {n.module or "", *(f"{n.module}.{a.name}" for a in n.names)}
    return out


def _at_start(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those of functions, which run later, and of TYPE_CHECKING, which never run."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _at_start(child)


def imported(path: Path) -> set[str]:
    """Our modules that a file imports; of `from package import name` the module of that name, else the package."""
    out: set[str] = set()
    for n in ast.walk(tree(path)):
        if isinstance(n, ast.Import):
            out |= {a.name.removeprefix("evotrainer.") for a in n.names if a.name.startswith("evotrainer.")}
        elif isinstance(n, ast.ImportFrom) and f"{n.module}.".startswith("evotrainer."):
            base = f"{n.module}.".removeprefix("evotrainer.")
            out |= {base + a.name if base + a.name in modules() else base.rstrip(".") for a in n.names}
        elif isinstance(n, ast.Call) and ast.unparse(n) == "iter_modules(__path__)":  # a package that imports its files
            out |= {m for m, p in modules().items() if p.parent == path.parent and p != path}
    return out - {""}


@cache
def module_graph() -> dict[str, set[str]]:
    """Module -> modules of ours that it imports."""
    return {m: imported(p) - {m} for m, p in modules().items()}


PLACE = re.compile(r"evotrainer\.([\w.]+):(\w+)")
"""Where a registry finds an object: `evotrainer.envs.maths:MATH`."""


@cache
def places(module: str) -> set[str]:
    """Places that a registry written in this module names."""
    strings = [n.value for n in ast.walk(tree(modules()[module])) if isinstance(n, ast.Constant)]
    return {s for s in strings if isinstance(s, str) and PLACE.fullmatch(s)}


def rooms_by_name(module: str) -> set[str]:
    """Modules that a registry written in this one imports when a task names them."""
    found = {m[1] for s in places(module) if (m := PLACE.fullmatch(s))}
    strings = [n.value for n in ast.walk(tree(modules()[module])) if isinstance(n, ast.Constant)]
    by_folder = "*/spec.py" in strings  # a registry of all folders that have one
    return found | {m for m in modules() if by_folder and m.startswith(f"{module}.") and m.endswith(".spec")}


def closure(starts: Iterable[str]) -> set[str]:
    """Modules that these reach by imports, deferred ones and packages around a module included."""
    seen, todo = set[str](), list(starts)
    while todo:
        m = todo.pop()
        if m not in seen:
            seen.add(m)
            todo += module_graph()[m] | {m.rpartition(".")[0]}
    return seen


@cache
def room_graph() -> dict[str, set[str]]:
    """Room -> rooms that some module in it imports."""
    out: dict[str, set[str]] = {room(m): set() for m in modules() if m}
    for m, used in module_graph().items():
        out.setdefault(room(m), set()).update(room(u) for u in used if room(u) != room(m))
    return out


def rings(graph: Graph) -> list[list[str]]:
    """Groups that import one another, deferred or not, each sorted (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(v: str) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph.get(v, ()):
            if w not in index:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == index[v]:
            at = stack.index(v)
            ring = sorted(stack[at:])
            del stack[at:]
            if len(ring) > 1:
                found.append(ring)

    for v in graph:
        if v not in index:
            visit(v)
    return found

"""Names in a syntax tree, in full: `sp.run` is `subprocess.run` where the program imported it so."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType


def dotted(node: ast.AST, aliases: Mapping[str, str] = MappingProxyType({})) -> str:
    """`a.b.c` of a name or attribute chain, imported names by their full name; also of `getattr(a, "b")` and
    `__import__("a")`. Empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        head = aliases.get(node.id, node.id)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and node.args:
        called, last = dotted(node.func, aliases), node.args[-1]
        if not (isinstance(last, ast.Constant) and isinstance(last.value, str)):
            return ""
        if called in {"__import__", "importlib.import_module"}:
            head = last.value
        # a third argument is a default: such a call asks whether the name is there and need not reach it
        elif called == "getattr" and len(node.args) == 2 and (owner := dotted(node.args[0], aliases)):
            head = f"{owner}.{last.value}"
        else:
            return ""
    else:
        return ""
    return ".".join((head, *reversed(parts)))


def aliases_of(nodes: list[ast.AST]) -> dict[str, str]:
    """Local name -> full name of what is imported."""
    out: dict[str, str] = {}
    for n in nodes:
        if isinstance(n, ast.Import):
            out |= {a.asname: a.name for a in n.names if a.asname}
        elif isinstance(n, ast.ImportFrom) and n.module:
            out |= {a.asname or a.name: f"{n.module}.{a.name}" for a in n.names}
    return out

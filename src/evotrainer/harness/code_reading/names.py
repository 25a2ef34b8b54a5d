"""Names in a syntax tree, in full: `sp.run` is `subprocess.run` where the program imported it so."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType

MAX_FOLDED = 200
"""Characters of a text that is put together of constants."""
_DEPTH = 6


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


def folded(node: ast.AST, depth: int = _DEPTH) -> str | None:
    """The text of an expression of constants: `"_ex" + "it"`, `"".join(["a", "b"])`, `"tixe"[::-1]`; None for anything
    else and for more than MAX_FOLDED characters."""
    text = _text(node, depth)
    return text if text is not None and len(text) <= MAX_FOLDED else None


def _text(node: ast.AST, depth: int) -> str | None:
    if depth <= 0:
        return None
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = folded(node.left, depth - 1), folded(node.right, depth - 1)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.JoinedStr):
        return _joined("", node.values, depth)
    if isinstance(node, ast.FormattedValue):
        return folded(node.value, depth - 1)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        s = node.slice
        backwards = isinstance(s.step, ast.UnaryOp) and isinstance(s.step.op, ast.USub) and not (s.lower or s.upper)
        text = folded(node.value, depth - 1) if backwards else None
        return text[::-1] if text is not None else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join":
        between, parts = folded(node.func.value, depth - 1), node.args[0] if len(node.args) == 1 else None
        if between is not None and isinstance(parts, ast.List | ast.Tuple):
            return _joined(between, parts.elts, depth)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "chr" and len(node.args) == 1:
        code = node.args[0]
        return (
            chr(code.value)
            if isinstance(code, ast.Constant) and type(code.value) is int and 0 < code.value < 128
            else None
        )
    return None


def _joined(between: str, parts: list[ast.expr], depth: int) -> str | None:
    texts = [folded(p, depth - 1) for p in parts[:MAX_FOLDED]]
    known = [t for t in texts if t is not None]
    return between.join(known) if len(known) == len(texts) else None


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

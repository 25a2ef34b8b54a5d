"""Names in a syntax tree, in full: `sp.run` is `subprocess.run` where the program imported it so."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
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

"""Walking syntax trees: what nearly all rules do, and most of what reading a program costs."""

from __future__ import annotations

import ast

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

"""Makes values that resemble another one but do not equal it: a solution that calls them equal is not believed."""

from __future__ import annotations

from typing import Any


def unequal_values(value: Any) -> list[Any]:
    """Values like this one that do not equal it; the solution must not call them equal to what equals this one."""
    kind: Any = type(value)
    found: list[Any] = []
    if kind in (int, float, bool, complex):
        found = [value + 1, value - 1, value + 2, value - 2, 2 * value + 1, value + 1000, -value - 1]
    elif kind in (str, bytes):
        more = "x" if kind is str else b"x"
        found = [value + more, more + value, value[:-1], value[1:], value + value]
    elif kind in (list, tuple):
        last = value[-1:] or kind([0])
        found = [value + last, value[:-1], value[1:], value + kind(["x"])]
        found += [
            kind([*value[:i], x, *value[i + 1 :]]) for i, v in enumerate(value[:3]) for x in unequal_values(v)[:1]
        ]
    elif kind is dict:
        found = [{**value, "x": 0}, dict(list(value.items())[:-1])]
        found += [{**value, k: x} for k, v in list(value.items())[:3] for x in unequal_values(v)[:1]]
    elif kind in (set, frozenset):
        found = [value | {"x"}, kind(list(value)[:-1])]
    return [x for x in found if x != value]

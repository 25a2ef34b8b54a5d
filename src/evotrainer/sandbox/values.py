"""Python values as JSON, with exact types: `True` is not `1`, `1` is not `1.0`, a tuple is not a list.

`encode` runs on the untrusted side and `decode` on the trusted one, so `decode` builds nothing but plain containers and
numbers, bounds what it builds, and raises `ValueError` for everything else. JSON null, booleans, strings, finite
floats, small integers and arrays (lists) stand for themselves; other types are objects `{"t": type, "v": ...}`.

Used on both sides of the sandbox wall: standard library only.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 100
MAX_NODES = 1_000_000
MAX_HASHED = 10_000
"""Entries of one set or dict: crafted keys make insertion quadratic, 10,000 of them cost under a second."""
_BIG = 1 << 512
"""Larger integers travel as hexadecimal: decimal conversion is quadratic and capped by the interpreter."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """Stands for a value of a type that does not travel; equal to nothing a test would expect."""

    type: str
    handle: int = -1
    """Index in the candidate's table of kept objects (relayed calls only), -1 when it was not kept."""


class _Encoder:
    """One walk over one value; `keep` receives an object that cannot travel and returns its handle."""

    def __init__(self, keep: Callable[[Any], int] | None) -> None:
        self.keep = keep
        self.nodes = 0

    def opaque(self, value: Any) -> Any:
        handle = self.keep(value) if self.keep else -1
        return {"t": "opaque", "v": [str(type(value).__name__)[:100], handle]}

    def items(self, values: Any, depth: int) -> list[Any]:
        if self.nodes + len(values) > MAX_NODES:
            raise ValueError("value too large to travel")
        return [self.walk(v, depth) for v in values]

    def pairs(self, value: dict[Any, Any], depth: int) -> list[Any]:
        if self.nodes + len(value) > MAX_NODES:
            raise ValueError("value too large to travel")
        return [[self.walk(k, depth), self.walk(v, depth)] for k, v in dict.items(value)]

    def walk(self, value: Any, depth: int = 0) -> Any:
        self.nodes += 1
        kind = type(value)  # never isinstance: a subclass may lie about equality
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -_BIG < value < _BIG else {"t": "int", "v": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"t": "float", "v": repr(value)}
        if depth >= MAX_DEPTH:
            raise ValueError("value too deep to travel")
        depth += 1
        if kind is list:
            return self.items(value, depth)
        return self.tagged(kind, value, depth)

    def tagged(self, kind: type, value: Any, depth: int) -> Any:
        name = kind.__name__
        if kind in (tuple, set, frozenset):
            return {"t": name, "v": self.items(value, depth)}
        if kind is deque:
            return {"t": name, "v": [value.maxlen, self.items(value, depth)]}
        if kind in (dict, OrderedDict, Counter, defaultdict):
            return {"t": name, "v": self.pairs(value, depth)}
        if kind in (bytes, bytearray):
            return {"t": name, "v": value.hex()}
        if kind is complex:
            return {"t": name, "v": [repr(value.real), repr(value.imag)]}
        if kind is range:
            return {"t": name, "v": self.items((value.start, value.stop, value.step), depth)}
        if kind is Fraction:
            return {"t": name, "v": self.items((value.numerator, value.denominator), depth)}
        if kind is Decimal:
            return {"t": name, "v": str(value)}
        return self.opaque(value)


def encode(value: Any, keep: Callable[[Any], int] | None = None) -> Any:
    """JSON-able form of `value`; ValueError when it is too deep (cycles included) or too large."""
    return _Encoder(keep).walk(value)


def _hashed(items: list[Any]) -> list[Any]:
    if len(items) > MAX_HASHED:
        raise ValueError(f"set or dict of more than {MAX_HASHED} entries")
    return items


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is dict and value.get("t") == "int" and type(value.get("v")) is str:
        return int(value["v"], 16)
    raise ValueError("not an integer")


def _complex(parts: Any) -> complex:
    real, imag = parts
    if type(real) is not str or type(imag) is not str:
        raise ValueError("not a complex number")
    return complex(float(real), float(imag))


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("not text")
    return value


def _opaque(parts: Any) -> Opaque:
    name, handle = parts
    return Opaque(_text(name), _integer(handle))


def _deque(parts: Any, walk: Callable[[Any], Any]) -> deque[Any]:
    maxlen, items = parts
    return deque((walk(v) for v in items), None if maxlen is None else _integer(maxlen))


def _pairs(items: Any, walk: Callable[[Any], Any]) -> dict[Any, Any]:
    return {walk(k): walk(v) for k, v in _hashed(items)}


def _decimal(value: str) -> Decimal:
    if len(value) > 10_000:
        raise ValueError("decimal too long")
    return Decimal(value)


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "int": lambda v: int(_text(v), 16),
    "float": lambda v: float(_text(v)),
    "bytes": lambda v: bytes.fromhex(_text(v)),
    "bytearray": lambda v: bytearray.fromhex(_text(v)),
    "complex": _complex,
    "Decimal": lambda v: _decimal(_text(v)),
    "Fraction": lambda v: Fraction(_integer(v[0]), _integer(v[1])),
    "range": lambda v: range(*(_integer(x) for x in v)),
    "opaque": _opaque,
}
_CONTAINERS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "tuple": lambda v, walk: tuple(walk(x) for x in v),
    "set": lambda v, walk: {walk(x) for x in _hashed(v)},
    "frozenset": lambda v, walk: frozenset(walk(x) for x in _hashed(v)),
    "deque": _deque,
    "dict": _pairs,
    "OrderedDict": lambda v, walk: OrderedDict(_pairs(v, walk)),
    "Counter": lambda v, walk: Counter(_pairs(v, walk)),
    "defaultdict": lambda v, walk: defaultdict(None, _pairs(v, walk)),
}


def _decode(value: Any, resolve: Callable[[Opaque], Any] | None, depth: int) -> Any:
    if depth > MAX_DEPTH + 1:
        raise ValueError("value too deep")
    kind = type(value)
    if kind is list:
        return [_decode(v, resolve, depth + 1) for v in value]
    if kind is not dict:
        return value
    tag, body = value.get("t"), value.get("v")
    if type(tag) is str and tag in _SCALARS:
        found = _SCALARS[tag](body)
        return resolve(found) if resolve is not None and type(found) is Opaque else found
    if type(tag) is str and tag in _CONTAINERS and type(body) is list:
        return _CONTAINERS[tag](body, lambda v: _decode(v, resolve, depth + 1))
    raise ValueError("unknown value tag")


def decode(value: Any, resolve: Callable[[Opaque], Any] | None = None) -> Any:
    """The value behind `encode`'s output; ValueError for anything else, whatever a hostile program sent."""
    try:
        return _decode(value, resolve, 0)
    except (TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise ValueError(f"malformed value: {type(error).__name__}") from None


def _key(value: Any) -> Any:
    """Hashable with exact types all the way down: distinguishes (1, True) from (True, 1)."""
    if type(value) is tuple:
        return (tuple, tuple(_key(v) for v in value))
    if type(value) is frozenset:
        return (frozenset, frozenset(_key(v) for v in value))
    if value != value:
        return (type(value), repr(value))
    return (type(value), value)


def _close(a: float, b: float, tolerance: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if a == b:
        return True
    return math.isfinite(a) and math.isfinite(b) and abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))


def same(actual: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Exact types and equal values, NaN equal to NaN; floats within `tolerance` (absolute below 1, relative above).

    Dict and set order does not matter. A value of a type that does not travel equals nothing.
    """
    kind = type(actual)
    if kind is not type(expected) or kind is Opaque:
        return False
    if kind is float:
        return _close(actual, expected, tolerance)
    if kind is complex:
        return _close(actual.real, expected.real, tolerance) and _close(actual.imag, expected.imag, tolerance)
    if kind in (list, tuple, deque):
        return len(actual) == len(expected) and all(
            same(x, y, tolerance) for x, y in zip(actual, expected, strict=True)
        )
    if kind in (dict, OrderedDict, Counter, defaultdict):
        wanted = {_key(k): v for k, v in expected.items()}
        found = {_key(k): v for k, v in actual.items()}
        return wanted.keys() == found.keys() and all(same(v, wanted[k], tolerance) for k, v in found.items())
    if kind in (set, frozenset):
        return {_key(v) for v in actual} == {_key(v) for v in expected}
    if kind is Decimal and (actual.is_nan() or expected.is_nan()):
        return str(actual) == str(expected)
    return bool(actual == expected)

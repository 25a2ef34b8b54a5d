"""Python values as JSON, with exact types: `True` is not `1`, `1` is not `1.0`, a tuple is not a list.

`encode` runs on the untrusted side and `decode` on the trusted one, so `decode` builds nothing but plain containers and
numbers, takes only what `encode` writes, bounds its own work, and raises `ValueError` for everything else. JSON null,
booleans, strings, finite floats, small integers and arrays (lists) stand for themselves; other types are objects `{"t":
type, "v": ...}`.

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
MAX_NODES = 2_000_000
"""Values in one value that goes in, every key included. What is tagged and no tuple counts as `1 + _TAG_NODES`."""
ANSWER_NODES = 320_000
"""The same of a value that comes out of a program: 100,000 pairs pass."""
_TAG_NODES = 8
MAX_ALIKE = 40
"""Entries of one set or dict with the same hash: each is compared with all before it. Crafted keys have nothing else
(multiples of 2^61 - 1), honest ones at most some 35 (powers of two as floats)."""
_BIG = 1 << 512
"""Larger integers travel as hexadecimal: decimal conversion is quadratic and capped by the interpreter."""
_MAX_HEX = 4096
"""Hexadecimal digits (4,900 decimal ones) of an integer in a Fraction or range, which divide when they are made:
quadratic."""
_MAX_DECIMAL = 10_000
_MAX_NAME = 100
_PLAIN = frozenset({type(None), bool, int, float, str})
_NOT_FINITE = frozenset({"nan", "inf", "-inf"})


@dataclass(frozen=True, slots=True)
class Opaque:
    """Stands for a value of a type that does not travel; equal to nothing a test would expect."""

    type: str
    handle: int = -1
    """Index in the candidate's table of kept objects (relayed calls only), -1 when it was not kept."""


class NodeLimit:
    """Nodes that may still be encoded or decoded."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: int = MAX_NODES) -> None:
        self.nodes = nodes

    def spend(self, nodes: int) -> None:
        """ValueError when it is used up."""
        self.nodes -= nodes
        if self.nodes < 0:
            raise ValueError("value too large to travel")


class _Encoder:
    """One walk over one value; `keep` receives an object that cannot travel and returns its handle."""

    def __init__(self, keep: Callable[[Any], int] | None, budget: NodeLimit) -> None:
        self.keep = keep
        self.budget = budget

    def opaque(self, value: Any) -> Any:
        handle = self.keep(value) if self.keep else -1
        return {"t": "opaque", "v": [str(type(value).__name__)[:100], handle]}

    def items(self, values: Any, depth: int) -> list[Any]:
        self.budget.spend(len(values))
        return [self.walk(v, depth) for v in values]

    def pairs(self, value: dict[Any, Any], depth: int) -> list[Any]:
        self.budget.spend(2 * len(value))
        return [[self.walk(k, depth), self.walk(v, depth)] for k, v in dict.items(value)]

    def walk(self, value: Any, depth: int = 0) -> Any:
        kind = type(value)  # never isinstance: a subclass may lie about equality
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -_BIG < value < _BIG else {"t": "int", "v": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"t": "float", "v": repr(value)}
        # cycles end here as well
        if depth >= MAX_DEPTH:
            raise ValueError("value too deep to travel")
        depth += 1
        if kind is list:
            return self.items(value, depth)
        return self.tagged(kind, value, depth)

    def tagged(self, kind: type, value: Any, depth: int) -> Any:
        name = kind.__name__
        if kind is tuple:
            return {"t": name, "v": self.items(value, depth)}
        # objects cost more to build than list items: counted so, a budget bounds time and not only size
        self.budget.spend(_TAG_NODES)
        if kind in (set, frozenset):
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


def encode(value: Any, keep: Callable[[Any], int] | None = None, nodes: int = MAX_NODES) -> Any:
    """JSON-able form of `value`; ValueError when it is too deep (cycles included) or too large."""
    return _Encoder(keep, NodeLimit(nodes)).walk(value)


def _text(value: Any, most: int) -> str:
    if type(value) is not str or len(value) > most:
        raise ValueError("no text, or too long")
    return value


def _integer(value: Any) -> int:
    """An integer of bounded length, plain or tagged."""
    if type(value) is int:
        return value
    if type(value) is dict and len(value) == 2 and value.get("t") == "int":
        # + 3: a sign and the 0x
        return int(_text(value["v"], _MAX_HEX + 3), 16)
    raise ValueError("not an integer")


def _integers(values: Any, n: int) -> list[int]:
    if type(values) is not list or len(values) != n:
        raise ValueError(f"not {n} integers")
    return [_integer(v) for v in values]


def _big(value: Any) -> int:
    return int(_text(value, 1 << 62), 16)  # linear; the frame bounds its length


def _float(value: Any) -> float:
    if value not in _NOT_FINITE:
        raise ValueError("a finite float travels as itself")
    return float(value)


def _complex(parts: Any) -> complex:
    real, imag = parts
    return complex(float(_text(real, 32)), float(_text(imag, 32)))


def _opaque(parts: Any) -> Opaque:
    name, handle = parts
    return Opaque(_text(name, _MAX_NAME), _integer(handle))


def _counter(counts: dict[Any, Any]) -> Counter[Any]:
    found: Counter[Any] = Counter.__new__(Counter)
    dict.update(found, counts)  # its own update takes four times as long
    return found


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "int": _big,
    "float": _float,
    "bytes": lambda v: bytes.fromhex(v),
    "bytearray": lambda v: bytearray.fromhex(v),
    "complex": _complex,
    "Decimal": lambda v: Decimal(_text(v, _MAX_DECIMAL)),
    "Fraction": lambda v: Fraction(*_integers(v, 2)),
    "range": lambda v: range(*_integers(v, 3)),
    "opaque": _opaque,
}
_MAPPINGS: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "dict": lambda v: v,
    "OrderedDict": OrderedDict,
    "Counter": _counter,
    # without its factory: code of the program never runs on this side
    "defaultdict": lambda v: defaultdict(None, v),
}


def _hashed(keys: list[Any]) -> list[Any]:
    """Keys that a hash table takes without many comparisons; ValueError for crafted ones."""
    # few keys cannot collide enough to matter: counting hashes is skipped for them
    if len(keys) > MAX_ALIKE and max(Counter(map(hash, keys)).values()) > MAX_ALIKE:
        raise ValueError("too many keys of one hash")
    return keys


class _Decoder:
    """One walk over one encoding; `resolve` receives what stands for an object that did not travel."""

    def __init__(self, resolve: Callable[[Opaque], Any] | None, budget: NodeLimit) -> None:
        self.resolve = resolve
        self.budget = budget

    def walk(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if depth > MAX_DEPTH:
            raise ValueError("value too deep")
        if kind is list:
            return self.items(value, depth + 1)
        if kind is dict and len(value) == 2 and type(tag := value["t"]) is str:
            return self.tagged(tag, value["v"], depth + 1)
        raise ValueError("unknown value tag")

    def items(self, values: Any, depth: int) -> list[Any]:
        if type(values) is not list:
            raise ValueError("not a list of values")
        self.budget.spend(len(values))
        # a list of plain values is itself: no copy, and no Python-level loop over it
        if _PLAIN.issuperset(map(type, values)):
            return values
        return [v if type(v) in _PLAIN else self.walk(v, depth) for v in values]

    def tagged(self, tag: str, body: Any, depth: int) -> Any:
        if tag == "tuple":
            return tuple(self.items(body, depth))
        self.budget.spend(_TAG_NODES)
        if tag in _SCALARS:
            found = _SCALARS[tag](body)
            return self.resolve(found) if self.resolve is not None and type(found) is Opaque else found
        if tag in ("set", "frozenset"):
            items = _hashed(self.items(body, depth))
            return self.unique(set(items) if tag == "set" else frozenset(items), len(items))
        if tag in _MAPPINGS:
            return _MAPPINGS[tag](self.pairs(body, depth))
        if tag == "deque":
            most, items = body
            return deque(self.items(items, depth), None if most is None else _integer(most))
        raise ValueError("unknown value tag")

    def pairs(self, body: Any, depth: int) -> dict[Any, Any]:
        if type(body) is not list:
            raise ValueError("not a list of pairs")
        for pair in body:
            if type(pair) is not list or len(pair) != 2:
                raise ValueError("not a list of pairs")
        # keys before the dict is built: crafted hashes make insertion quadratic
        keys = _hashed(self.items([k for k, _ in body], depth))
        return self.unique(dict(zip(keys, self.items([v for _, v in body], depth), strict=True)), len(keys))

    @staticmethod
    def unique(found: Any, n: int) -> Any:
        if len(found) != n:
            raise ValueError("a key twice")
        return found


def decode(value: Any, resolve: Callable[[Opaque], Any] | None = None, budget: NodeLimit | None = None) -> Any:
    """The value behind `encode`'s output; ValueError for anything else, whatever a hostile program sent."""
    try:
        return _Decoder(resolve, budget or NodeLimit()).walk(value, 0)
    except (TypeError, LookupError, ArithmeticError, AttributeError, RecursionError, MemoryError) as error:
        raise ValueError(f"malformed value: {type(error).__name__}") from None


def _key(value: Any) -> Any:
    """Hashable with exact types all the way down: distinguishes (1, True) from (True, 1)."""
    if type(value) is tuple:
        return (tuple, tuple(_key(v) for v in value))
    if type(value) is frozenset:
        return (frozenset, frozenset(_key(v) for v in value))
    # NaN is no key that can be found again; by its text it is
    if value != value:
        return (type(value), repr(value))
    return (type(value), value)


def _close(a: float, b: float, tolerance: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if a == b:
        return True
    # inf - inf is NaN and inf times the tolerance is inf: infinities are equal or different, never close
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
        if len(actual) != len(expected):
            return False
        # 1, 1.0 and True are one key to a dict: with their types they are three
        wanted = {_key(k): v for k, v in expected.items()}
        found = {_key(k): v for k, v in actual.items()}
        return wanted.keys() == found.keys() and all(same(v, wanted[k], tolerance) for k, v in found.items())
    if kind in (set, frozenset):
        return len(actual) == len(expected) and {_key(v) for v in actual} == {_key(v) for v in expected}
    # a signalling NaN raises when it is compared
    if kind is Decimal and (actual.is_nan() or expected.is_nan()):
        return str(actual) == str(expected)
    return bool(actual == expected)

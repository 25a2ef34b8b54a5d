"""The parser of answers as it was before it was total (commit 9bd9c32):
what the corpora of frames are shown to break.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from evotrainer.sandbox.model import CaseResult
from evotrainer.sandbox.values import Opaque

CAUGHT = (ValueError, KeyError, TypeError, RecursionError)
"""What its caller took for a malformed answer; anything else ended the grader."""
_STATUSES = ("ok", "error", "timeout", "memory", "output")


def _hashed(items: list[Any]) -> list[Any]:
    if len(items) > 10_000:
        raise ValueError("set or dict of more than 10,000 entries")
    return items


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is dict and value.get("t") == "int" and type(value.get("v")) is str:
        return int(value["v"], 16)
    raise ValueError("not an integer")


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("not text")
    return value


def _decimal(value: str) -> Decimal:
    if len(value) > 10_000:
        raise ValueError("decimal too long")
    return Decimal(value)


def _complex(parts: Any) -> complex:
    real, imag = parts
    return complex(float(_text(real)), float(_text(imag)))


def _opaque(parts: Any) -> Opaque:
    name, handle = parts
    return Opaque(_text(name), _integer(handle))


def _deque(parts: Any, walk: Callable[[Any], Any]) -> deque[Any]:
    most, items = parts
    return deque((walk(v) for v in items), None if most is None else _integer(most))


def _pairs(items: Any, walk: Callable[[Any], Any]) -> dict[Any, Any]:
    return {walk(k): walk(v) for k, v in _hashed(items)}


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


def _walk(value: Any, depth: int = 0) -> Any:
    if depth > 101:
        raise ValueError("value too deep")
    if type(value) is list:
        return [_walk(v, depth + 1) for v in value]
    if type(value) is not dict:
        return value
    tag, body = value.get("t"), value.get("v")
    if type(tag) is str and tag in _SCALARS:
        return _SCALARS[tag](body)
    if type(tag) is str and tag in _CONTAINERS and type(body) is list:
        return _CONTAINERS[tag](body, lambda v: _walk(v, depth + 1))
    raise ValueError("unknown value tag")


def naive_decode(value: Any) -> Any:
    """`values.decode` of that commit."""
    try:
        return _walk(value)
    except (TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise ValueError(f"malformed value: {type(error).__name__}") from None


def naive(line: bytes) -> CaseResult:
    """`RunJob._case` of that commit."""
    answer = json.loads(line)
    status, cpu_s = answer["s"], answer["t"]
    if status not in _STATUSES or type(cpu_s) is not float:
        raise ValueError("malformed answer")
    error = answer.get("e")
    note = (str(error[0]), str(error[1])) if error else None
    if "o" in answer and type(answer["o"]) is not str:
        raise ValueError("malformed answer")
    value = naive_decode(answer["v"]) if "v" in answer else None
    return CaseResult(status, answer.get("o"), value, note, max(0.0, cpu_s))


def naive_verdict(line: bytes) -> tuple[str, Any]:
    """What `CheckJob._line` of that commit made of a message of the tests."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = {"fail": ["ValueError", "malformed message of the tests"]}
    if "n" in message:
        return "call", None
    if message.get("done") is True:
        return "ok", None
    name, text = message["fail"]
    return "error", (str(name), str(text))


def naive_lines(inbox: bytearray) -> list[bytearray]:
    """How both cut what had come into lines."""
    *lines, _ = inbox.split(b"\n")
    return lines

"""Makes the answers of written code safe where they arrive: a value becomes a number, a text, or `OpaqueValue`.

`received` returns nothing but None, booleans, integers of 64 bits, floats, texts, lists of these, and `OpaqueValue` for
the rest: none raises where it is compared, printed or converted. The sandbox's runners hand on nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from evotrainer.records.text import clean, clean_text, shown

_LARGEST_INT = 1 << 63


@dataclass(frozen=True, slots=True, repr=False)
class OpaqueValue:
    """Stands for a value that is no plain data, or a number too large to count with; equal only to another of
    the same text."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class CallResults:
    """What one function answered to some calls, in order; values as `received` gives them."""

    values: list[Any]
    failed: dict[int, str]
    """Place -> how it failed there; its value is None."""
    cpu_s: float


def received(value: Any) -> Any:
    """Plain data of a decoded value (`sandbox.values.decode`: at most 100 deep); never raises."""
    kind = type(value)
    if value is None or kind in (bool, float) or (kind is int and -_LARGEST_INT <= value < _LARGEST_INT):
        return value
    if kind is str:
        return clean_text(value)
    if kind is list:
        return [received(v) for v in value]
    return OpaqueValue(clean(shown(value, 60), 60))


def number(value: object) -> float | None:
    """A finite number as a float; None for anything else (True is no number here). Never raises."""
    if type(value) is int:
        return float(value) if -_LARGEST_INT <= value < _LARGEST_INT else None
    return value if type(value) is float and math.isfinite(value) else None


def in_words(value: object) -> str:
    """A value in a message: a list by its length, anything else by its beginning. Never raises."""
    return f"a list of {len(value)}" if type(value) is list else clean(shown(value, 60), 60)

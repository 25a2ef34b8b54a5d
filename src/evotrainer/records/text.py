"""Text and values as they come from policies and programs, made storable and showable."""

from __future__ import annotations

import math
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from evotrainer.errors import EvoTrainerError

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_LONG_INT_BITS = 12_000
"""Longer integers are shown as hexadecimal: decimal conversion is quadratic,
and refused by the interpreter from 4,300 digits on."""
_MAX_DEPTH = 100
_FALLBACK_CHARS = 4_000
_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
    deque: ("deque([", "])"),
    dict: ("{", "}"),
    OrderedDict: ("OrderedDict({", "})"),
    Counter: ("Counter({", "})"),
    defaultdict: ("defaultdict({", "})"),
}


def clean_text(text: str) -> str:
    """`text` with lone surrogates, which UTF-8 cannot hold, replaced by U+FFFD."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def shown(value: Any, limit: int, end: str = "...") -> str:
    """At most `limit` characters of `repr(value)`, `end` last where it was cut.

    For values that nobody vouches for: never raises, costs about as much as it shows, and UTF-8 can hold the result.
    """
    text = ""
    for piece in _pieces(value, limit + 1, 0):
        text += piece
        if len(text) > limit:
            text = text[: max(0, limit - len(end))] + end
            break
    return text if text.isascii() else clean_text(text)


def cut(text: object, limit: int) -> str:
    """At most `limit` characters of a text; where it is longer, whole words of it and `…`."""
    s = as_text(text)
    if len(s) <= limit:
        return s
    head = s[: limit - 1]
    at = max(head.rfind(" "), head.rfind("\n"))
    return (head[:at] if at > limit // 2 else head).rstrip() + "…"


def quoted(value: object, limit: int = 60) -> str:
    """The beginning of a value's text in quotes, for a message that points at it."""
    return repr(cut(value, limit))


def cause(error: object, limit: int = 300) -> str:
    """An error in one line: all that one of ours says, the first line of any other; its type where that is empty."""
    message = as_text(error).strip()
    if isinstance(error, EvoTrainerError):
        return " ".join(message.split())
    return cut(message.split("\n", 1)[0].strip(), limit) or type(error).__name__


def counted(n: int, what: str) -> str:
    """`1 branch`, `2 branches`, `1,000 policies`: a number of things, `what` is one of them."""
    if n == 1:
        return f"1 {what}"
    if what.endswith(("ch", "sh", "x", "ss")):
        return f"{n:,} {what}es"
    return f"{n:,} {what[:-1]}ies" if re.search("[^aeiou]y$", what) else f"{n:,} {what}s"


def decimal_places(*pairs: tuple[float, float], least: int = 1) -> int:
    """Decimals of percentages at which the two shares of each pair are told apart; at least `least`, 8 at most."""
    unlike = [(100 * a, 100 * b) for a, b in pairs if a != b]
    return next((n for n in range(least, 8) if all(round(a, n) != round(b, n) for a, b in unlike)), 8)


def noise_floor(share: float, places: int = 1, unit: str = " points") -> str:
    """As points; scores are shares, so that no gain reaches 100."""
    few = f"100{unit} and more (nothing can be shown with so few seeds)"
    return few if share >= 1 else f"{100 * share:.{places}f}{unit}"


NUMBER = re.compile(r"(?<![\w-])-?\d+(?:\.\d+)?|\d+(?:\.\d+)?")


def first_number(text: str) -> float | None:
    """The first number that a text holds; a hyphen after a letter is none of its signs: `level-3` is 3, `-3` is -3."""
    found = NUMBER.search(text)
    return float(found[0]) if found else None


def as_text(value: Any) -> str:
    """`str(value)`, or what `shown` makes of a value that has none."""
    if isinstance(value, str):
        return value
    try:
        return str(value)
    except Exception:
        return shown(value, _FALLBACK_CHARS)


def clean(text: object, limit: int = 240) -> str:
    """Text fit for a report: control and direction characters made visible, surrogates replaced, cut at `limit`."""
    s = as_text(text)[: limit + 1]
    s = s.encode("utf-8", "replace").decode("utf-8")
    s = _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", s)
    return s if len(s) <= limit else s[: limit - 1] + "…"


def json_safe(value: Any, limit: int) -> Any:
    """What JSON holds for every reader: None, a boolean, a finite number of 64 bits,
    else text of at most `limit` characters."""
    if isinstance(value, str):
        return clean_text(value if len(value) <= limit else value[: limit - 3] + "...")
    if value is None or isinstance(value, bool):
        return value
    if (type(value) is int and -(1 << 63) <= value < 1 << 63) or (type(value) is float and math.isfinite(value)):
        return value
    return shown(value, limit)


def _pieces(value: Any, most: int, depth: int) -> Iterator[str]:
    """`repr(value)` in pieces of about `most` characters or less."""
    kind = type(value)
    if kind in (str, bytes, bytearray):
        yield repr(value[:most])
    elif kind is int:
        yield _integer(value, most)
    elif kind in (Fraction, range):
        numbers = (value.numerator, value.denominator) if kind is Fraction else (value.start, value.stop, value.step)
        numbers = numbers[:2] if kind is range and value.step == 1 else numbers
        yield f"{kind.__name__}({', '.join(_integer(n, most) for n in numbers)})"
    elif kind in _BRACKETS:
        yield from _container(value, most, depth)
    else:
        try:
            yield repr(value)[:most]
        except Exception:  # whatever a foreign class does when it is shown
            yield f"<{kind.__name__[:most]}>"


def _container(value: Any, most: int, depth: int) -> Iterator[str]:
    kind = type(value)
    opening, closing = _BRACKETS[kind]
    if not value and kind in (set, frozenset):
        yield f"{kind.__name__}()"
        return
    yield opening
    if depth >= _MAX_DEPTH:
        yield "..."
    else:
        for i, item in enumerate(value.items() if isinstance(value, dict) else value):
            if i:
                yield ", "
            if isinstance(value, dict):
                yield from _pieces(item[0], most, depth + 1)
                yield ": "
                item = item[1]
            yield from _pieces(item, most, depth + 1)
    yield ",)" if kind is tuple and len(value) == 1 else closing


def _integer(value: int, most: int) -> str:
    bits = value.bit_length()
    if bits <= _LONG_INT_BITS:
        return repr(value)
    cut = max(0, bits // 4 - most) * 4  # whole hexadecimal digits, so that what is left is the front of hex(value)
    return ("-" if value < 0 else "") + hex(abs(value) >> cut)

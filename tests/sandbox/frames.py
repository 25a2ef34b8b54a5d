"""Forged answers, as data: lines on a child's result descriptor that no honest child writes.
All of them must be `Malformed`.

`harm`, what each does to a parser that believes its children: `raises` something its caller does not
expect, `misleads` it into an answer that breaks the contract of `CaseResult`, or `costs` it much more than it costs the
program.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

OUTPUT_BYTES = 1 << 20
P = 2**61 - 1
"""Integers modulo this prime are their own hashes: its multiples all have hash 0."""


@dataclass(frozen=True)
class Frame:
    """One line, as the answer of a call or of a script."""

    name: str
    harm: Literal["raises", "misleads", "costs"]
    line: bytes
    calls: bool = True


def _line(body: str, status: str = "ok", time: str = "0.0") -> bytes:
    return f'{{"s": "{status}", "t": {time}, {body}}}'.encode()


def _value(encoded: Any) -> bytes:
    return _line(f'"v": {encoded if isinstance(encoded, str) else json.dumps(encoded)}')


def _hex(digits: int, digit: str = "7") -> dict[str, str]:
    return {"t": "int", "v": digit * digits}


def _fibonacci(bits: int) -> tuple[str, str]:
    """Neighbours in the series, in hexadecimal: the slowest greatest common divisor of their size."""
    a, b = 1, 1
    while b.bit_length() < bits:
        a, b = b, a + b
    return f"{a:x}", f"{b:x}"


_A, _B = _fibonacci(200_000)
_TUPLES = [{"t": "tuple", "v": [i * P, 0]} for i in range(3000)]

FRAMES = (
    # ends the grader
    Frame("an exception of one character", "raises", _line('"e": "x"', "error")),
    Frame("an exception without a message", "raises", _line('"e": ["ValueError"]', "error")),
    Frame("an exception of one number", "raises", _line('"e": [5]', "error")),
    Frame("a script's exception of one character", "raises", _line('"o": "", "e": "x"', "error"), calls=False),
    Frame("an exception beside an answer", "raises", _line('"v": 5, "e": "x"')),
    # believed
    Frame("endless time", "misleads", _line('"v": 5', time="Infinity")),
    Frame("endless time as a number", "misleads", _line('"v": 5', time="1e999")),
    Frame("time that is no number", "misleads", _line('"v": 5', time="NaN")),
    Frame("time before the start", "misleads", _line('"v": 5', time="-5.0")),
    Frame("time that nobody gave", "misleads", _line('"v": 5', time="1e9")),
    Frame("an exception made of a text", "misleads", _line('"e": "xy"', "error")),
    Frame("an exception of five parts", "misleads", _line('"e": ["a", "b", "c", "d", "e"]', "error")),
    Frame("an exception of numbers", "misleads", _line('"e": [1, 2]', "error")),
    Frame("an exception of lists", "misleads", _line('"e": [[[]], {}]', "error")),
    Frame("an exception of a megabyte", "misleads", _line(f'"e": ["E", "{"x" * (1 << 20)}"]', "error")),
    Frame("an error without an exception", "misleads", _line('"v": 5', "error")),
    Frame("a call that only printed", "misleads", _line('"o": "5"')),
    Frame("a call that printed and returned", "misleads", _line('"o": "5", "v": 5')),
    Frame("a script that returned", "misleads", _line('"v": 5'), calls=False),
    Frame("a script that printed and returned", "misleads", _line('"o": "5", "v": 5'), calls=False),
    Frame("a call without a value: None", "misleads", b'{"s": "ok", "t": 0.0}'),
    Frame("a script without output", "misleads", b'{"s": "ok", "t": 0.0}', calls=False),
    Frame("an answer with an exception", "misleads", _line('"v": 5, "e": ["A", "b"]')),
    Frame("a timeout with a value", "misleads", _line('"v": 5', "timeout")),
    Frame("a verdict beside the answer", "misleads", _line('"v": 5, "passed": true')),
    Frame("UTF-16", "misleads", '{"s": "ok", "t": 0.0, "v": 5}'.encode("utf-16")),
    Frame("a byte order mark", "misleads", b"\xef\xbb\xbf" + _line('"v": 5')),
    Frame("raw UTF-8", "misleads", '{"s": "ok", "t": 0.0, "o": "\N{SNOWMAN}"}'.encode(), calls=False),
    Frame("output with half a character", "misleads", _line(r'"o": "\ud800"'), calls=False),
    Frame("output over the limit", "misleads", _line(f'"o": "{"x" * (OUTPUT_BYTES + 1)}"'), calls=False),
    Frame("a line over the limit", "misleads", _line(f'"o": "{"x" * (2 * OUTPUT_BYTES + 4096)}"'), calls=False),
    Frame("NaN in the JSON", "misleads", _value("NaN")),
    Frame("infinity in the JSON", "misleads", _value("[-Infinity]")),
    Frame("a set with an element twice", "misleads", _value({"t": "set", "v": [1, 1]})),
    Frame("a set of 1, 1.0 and true", "misleads", _value('{"t": "set", "v": [1, 1.0, true]}')),
    Frame("a dict with a key twice", "misleads", _value({"t": "dict", "v": [[1, 0], [1, 5]]})),
    Frame("a tag with a third key", "misleads", _value({"t": "tuple", "v": [], "w": 1})),
    Frame("a finite float in disguise", "misleads", _value({"t": "float", "v": "5.0"})),
    Frame("a float of a megabyte", "misleads", _value({"t": "float", "v": "1" * (1 << 20)})),
    Frame("a complex of a megabyte", "misleads", _value({"t": "complex", "v": ["1" * (1 << 20), "0"]})),
    Frame("a class name of a megabyte", "misleads", _value({"t": "opaque", "v": ["x" * (1 << 20), -1]})),
    Frame("a deque of a text", "misleads", _value({"t": "deque", "v": [None, "abc"]})),
    Frame("a dict of texts", "misleads", _value({"t": "dict", "v": ["ab", "cd"]})),
    Frame("an ordered dict of dicts", "misleads", _value({"t": "OrderedDict", "v": [{"a": 0, "b": 0}]})),
    Frame("a handle of a megabyte", "misleads", _value({"t": "opaque", "v": ["x", _hex(1 << 20)]})),
    Frame("values without end", "misleads", _value("[" + "0," * 500_000 + "0]")),
    # expensive
    Frame("a fraction", "costs", _value({"t": "Fraction", "v": [{"t": "int", "v": _A}, {"t": "int", "v": _B}]})),
    Frame("a range", "costs", _value({"t": "range", "v": [0, _hex(1 << 18), _hex(1 << 17, "3")]})),
    Frame("colliding integers", "costs", _value({"t": "set", "v": [i * P for i in range(4000)]})),
    Frame("colliding keys", "costs", _value({"t": "dict", "v": [[i * P, 0] for i in range(4000)]})),
    Frame("colliding tuples", "costs", _value({"t": "frozenset", "v": _TUPLES})),
    Frame("colliding floats and integers", "costs", _value({"t": "set", "v": [0.0, *(i * P for i in range(1, 4000))]})),
    Frame("lists without end", "misleads", _value("[" + "[]," * 330_000 + "[]]")),
    Frame("counters without end", "misleads", _value("[" + '{"t":"Counter","v":[]},' * 80_000 + "0]")),
)

VERDICTS = (
    Frame("a list", "raises", b"[]"),
    Frame("a number", "raises", b"5"),
    Frame("null", "raises", b"null"),
    Frame("nothing said", "raises", b"{}"),
    Frame("a failure of one part", "raises", b'{"fail": ["x"]}'),
    Frame("a failure that is null", "raises", b'{"fail": null}'),
    Frame("nearly done", "raises", b'{"done": 1}'),
    Frame("a failure of two letters", "misleads", b'{"fail": "xy"}'),
    Frame("done, and more", "misleads", b'{"done": true, "fail": ["a", "b"]}'),
    Frame("a failure of a megabyte", "misleads", b'{"fail": ["a", "' + b"x" * (1 << 20) + b'"]}'),
    Frame("UTF-16", "misleads", '{"done": true}'.encode("utf-16")),
)
"""Messages that test code never sends: no verdict."""


def filled(values: str, n: int) -> bytes:
    """An answer of `n` times the same values."""
    return ('{"s":"ok","t":0.0,"v":[' + ",".join([values] * n) + "]}").encode()


DEAR = {
    "lists": filled("[]", 300_000),
    "fractions": filled('{"t":"Fraction","v":[1548008755920,957316]}', 30_000),
    "sets": filled('{"t":"set","v":[1,2]}', 29_000),
    "alike": filled('{"t":"set","v":[' + ",".join(str(i * P) for i in range(40)) + "]}", 2_400),
    "digits": filled("7" * 4299, 480),
    "hexadecimal": filled('{"t":"int","v":"' + "7" * 2_000_000 + '"}', 1),
}
"""Answers that are read, at the highest price: `python -m bench.sandbox.frames` measures it."""

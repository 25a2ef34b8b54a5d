"""Reads what a child says, line by line. Every byte of it is the program's claim: one schema, everything bounded.

What does not fit the schema is `MalformedLine`, the program's wrong answer; no input raises anything, and none costs
the parent more than about 0.2 CPU-seconds (docs/sandbox.md has the figures).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from evotrainer.records.text import clean_text
from evotrainer.sandbox.model import CaseResult, Status
from evotrainer.sandbox.values import ANSWER_NODES, NodeLimit, decode

MAX_TEXT = 500
"""Characters of an exception's type or message, as the child cuts them."""
_PROGRAM_NODES = 8 * ANSWER_NODES
_VERDICT_BYTES = 32 * MAX_TEXT
_KEYS: dict[str, frozenset[str]] = {
    "ok": frozenset(),
    "error": frozenset("e"),
    "timeout": frozenset(),
    "memory": frozenset(),
    "output": frozenset("e"),
}
"""Statuses a child may report, and what it may add to status, time and output."""


@dataclass(frozen=True, slots=True)
class MalformedLine:
    """A line that is no answer, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """What a line may hold. `calls`: the answer of a call has a value, that of a script has text."""

    calls: bool
    output_bytes: int
    cpu_s: float
    """CPU-seconds that a case can have used at most."""
    budget: NodeLimit = field(default_factory=lambda: NodeLimit(_PROGRAM_NODES))
    """What the values of all answers of a program together may still hold."""

    @property
    def line_bytes(self) -> int:
        return 2 * self.output_bytes + 4096


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse)


def loads(data: bytes | str, most: int) -> Any:
    """JSON of at most `most` characters, ASCII only, without NaN and infinity; ValueError for anything else."""
    # before parsing: JSON of a gigabyte costs as much to refuse as to read
    if len(data) > most:
        raise ValueError(f"longer than {most} bytes")
    try:
        return _JSON.decode(data if isinstance(data, str) else data.decode("ascii"))
    except (
        RecursionError,
        MemoryError,
    ) as error:  # nested too deeply; digits over the interpreter's limit are a ValueError
        raise ValueError(f"JSON that cannot be read: {type(error).__name__}") from None


def parse_answer(line: bytes, limits: AnswerLimits) -> CaseResult | MalformedLine:
    """One answer of a case: {"s": status, "t": CPU-seconds} and "o" (text), "v" (value) or "e" (exception).
    Never raises."""
    try:
        answer = loads(line, limits.line_bytes)
        if type(answer) is not dict:
            raise ValueError("no object")
        status, extra = _status(answer), set(answer) - {"s", "t"}
        result = "v" if limits.calls else "o"
        allowed = _KEYS[status] | ({result} if status == "ok" or not limits.calls else set())
        # keys are checked as a set before any is read: no half-read answer of a program that mixes two statuses
        lacking = (status == "ok" and result not in extra) or (status == "error" and "e" not in extra)
        if lacking or not extra <= allowed:
            raise ValueError(f"keys that do not go with status {status}")
        return CaseResult(
            status,
            _output(answer["o"], limits.output_bytes) if "o" in extra else None,
            _value(answer["v"], limits.budget) if "v" in extra else None,
            _error(answer["e"]) if "e" in extra else None,
            _seconds(answer["t"], limits.cpu_s),
        )
    except (ValueError, KeyError) as error:
        return MalformedLine(clean_text(str(error))[:100])


def _status(answer: dict[str, Any]) -> Status:
    status = answer["s"]
    if type(status) is not str or status not in _KEYS:
        raise ValueError("no status of a child")
    return status  # type: ignore[return-value]


def _seconds(value: Any, most: float) -> float:
    # a time is checked against what a case can have used: a program that claims less CPU than the kernel counted is
    # caught later
    if type(value) is not float or not math.isfinite(value) or not 0 <= value <= most:
        raise ValueError("no time that a case can have used")
    return value


def _output(text: Any, most: int) -> str:
    # ASCII first, as it is the common case: only other text is compared with its cleaned form
    if type(text) is not str or len(text) > most or (not text.isascii() and clean_text(text) != text):
        raise ValueError("no output of a program")
    return text


def _value(encoded: Any, left: NodeLimit) -> Any:
    # one case may not take what all the others together have left
    budget = NodeLimit(most := min(ANSWER_NODES, left.nodes))
    value = decode(encoded, budget=budget)
    left.nodes -= most - budget.nodes
    return value


def _error(value: Any) -> tuple[str, str]:
    """Type and message; an honest message may hold lone surrogates."""
    if type(value) is not list or len(value) != 2 or any(type(v) is not str or len(v) > MAX_TEXT for v in value):
        raise ValueError("no exception")
    return clean_text(value[0]), clean_text(value[1])


def parse_tests(line: bytes) -> Literal["call"] | tuple[Status, tuple[str, str] | None] | MalformedLine:
    """One message of test code: a call to be passed on unread, or the verdict. Never raises."""
    # recognised by its first bytes and passed on unread: the parent never decodes what the tests hand to the candidate
    if line.startswith(b'{"n": '):
        return "call"
    try:
        message = loads(line, _VERDICT_BYTES)
        # 1 == True in Python: {"done": 1} would pass the comparison alone
        if message == {"done": True} and message["done"] is True:
            return "ok", None
        if type(message) is not dict or set(message) != {"fail"}:
            raise ValueError("no verdict")
        return "error", _error(message["fail"])
    except ValueError as error:
        return MalformedLine(clean_text(str(error))[:100])


def take_lines(inbox: bytearray) -> Iterator[bytes]:
    """Whole lines, taken off the front one at a time: who stops asking has not paid for the rest."""
    start = 0
    try:
        while (end := inbox.find(b"\n", start)) >= 0:
            line = bytes(inbox[start:end])
            start = end + 1
            yield line
    finally:
        # in one piece at the end: deleting each line off the front would be quadratic in their number
        del inbox[:start]

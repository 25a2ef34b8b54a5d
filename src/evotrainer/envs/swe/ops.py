"""What functions of the generated repositories are made of: operations on one integer, each one line of code.

An operation has a phrase for the specification comment and a line of Python. `BROKEN` holds lines that only bugs write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

GENERATOR_VERSION = "swe-v1"
"""Changes whenever the same seed would give other repositories."""


class StopError(Exception):
    """A guard returned early, with this value."""

    def __init__(self, value: int) -> None:
        self.value = value


@dataclass(frozen=True, slots=True)
class Op:
    """`line` holds {k} where it has a constant; `apply(x, k)` is its meaning, written apart from the line."""

    phrase: str
    line: str
    apply: Callable[[int, int], int]
    constants: tuple[int, int] | None = None
    """Smallest and largest constant; None: no constant."""
    guard: bool = False


def _stop_if(condition: bool, x: int) -> int:
    if condition:
        raise StopError(0)
    return x


OPS: dict[str, Op] = {
    "add": Op("add {k}", "x = x + {k}", lambda x, k: x + k, (1, 9)),
    "sub": Op("subtract {k}", "x = x - {k}", lambda x, k: x - k, (1, 9)),
    "rsub": Op("subtract from {k}", "x = {k} - x", lambda x, k: k - x, (3, 30)),
    "mul": Op("multiply by {k}", "x = x * {k}", lambda x, k: x * k, (2, 9)),
    "mod": Op("take modulo {k}", "x = x % {k}", lambda x, k: x % k, (2, 9)),
    "div": Op("floor divide by {k}", "x = x // {k}", lambda x, k: x // k, (2, 5)),
    "cap": Op("cap at {k}", "x = min(x, {k})", lambda x, k: min(x, k), (3, 30)),
    "floor": Op("at least {k}", "x = max(x, {k})", lambda x, k: max(x, k), (1, 9)),
    "neg": Op("negate", "x = -x", lambda x, k: -x),
    "sq": Op("square", "x = x * x", lambda x, k: x * x),
    "abs": Op("absolute value", "x = abs(x)", lambda x, k: abs(x)),
    "below": Op("zero below {k}", "if x < {k}: return 0", lambda x, k: _stop_if(x < k, x), (1, 12), guard=True),
    "upto": Op("zero up to {k}", "if x <= {k}: return 0", lambda x, k: _stop_if(x <= k, x), (1, 12), guard=True),
    "above": Op("zero above {k}", "if x > {k}: return 0", lambda x, k: _stop_if(x > k, x), (3, 15), guard=True),
    "from": Op("zero from {k}", "if x >= {k}: return 0", lambda x, k: _stop_if(x >= k, x), (3, 15), guard=True),
}
BROKEN: dict[str, Op] = {
    "rmod": Op("", "x = {k} % x", lambda x, k: k % x, (2, 9)),
    "rdiv": Op("", "x = {k} // x", lambda x, k: k // x, (2, 5)),
    "radd": Op("", "x = {k} + x", lambda x, k: k + x, (3, 30)),
    "double": Op("", "x = x + x", lambda x, k: x + x),
}
EVERY = OPS | BROKEN


@dataclass(frozen=True, slots=True)
class Step:
    """One line: an operation of `EVERY` and its constant (0 where it has none)."""

    op: str
    k: int = 0

    @property
    def line(self) -> str:
        return EVERY[self.op].line.replace("{k}", str(self.k))

    @property
    def phrase(self) -> str:
        return EVERY[self.op].phrase.replace("{k}", str(self.k))


def evaluate(steps: Sequence[Step], x: int) -> int:
    """Meaning of the steps, in order; ZeroDivisionError where a broken line divides by zero."""
    try:
        for s in steps:
            x = EVERY[s.op].apply(x, s.k)
    except StopError as stop:
        return stop.value
    return x

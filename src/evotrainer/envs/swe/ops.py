"""What functions of the generated repositories are made of: operations on one integer, each one line of code; and what
they compute, tabulated on the inputs that issues and tests may have.

An operation has a phrase for the specification comment and a line of Python. `BROKEN` holds lines that only bugs write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

GENERATOR_VERSION = "swe-v1"
"""To be increased when the same seed would give other repositories."""


@dataclass(frozen=True, slots=True)
class LineOp:
    """`line` holds {k} where it has a constant; `apply(x, k)` is its meaning, written apart from the line: the new x,
    of a guard whether the function returns 0."""

    phrase: str
    line: str
    apply: Callable[[int, int], int]
    constants: tuple[int, int] | None = None
    """Smallest and largest constant; None: no constant."""
    guard: bool = False


OPS: dict[str, LineOp] = {
    "add": LineOp("add {k}", "x = x + {k}", lambda x, k: x + k, (1, 9)),
    "sub": LineOp("subtract {k}", "x = x - {k}", lambda x, k: x - k, (1, 9)),
    "rsub": LineOp("subtract from {k}", "x = {k} - x", lambda x, k: k - x, (3, 30)),
    "mul": LineOp("multiply by {k}", "x = x * {k}", lambda x, k: x * k, (2, 9)),
    "mod": LineOp("take modulo {k}", "x = x % {k}", lambda x, k: x % k, (2, 9)),
    "div": LineOp("floor divide by {k}", "x = x // {k}", lambda x, k: x // k, (2, 5)),
    "cap": LineOp("cap at {k}", "x = min(x, {k})", lambda x, k: min(x, k), (3, 30)),
    "floor": LineOp("at least {k}", "x = max(x, {k})", lambda x, k: max(x, k), (1, 9)),
    "neg": LineOp("negate", "x = -x", lambda x, k: -x),
    "sq": LineOp("square", "x = x * x", lambda x, k: x * x),
    "abs": LineOp("absolute value", "x = abs(x)", lambda x, k: abs(x)),
    "below": LineOp("zero below {k}", "if x < {k}: return 0", lambda x, k: x < k, (1, 12), guard=True),
    "upto": LineOp("zero up to {k}", "if x <= {k}: return 0", lambda x, k: x <= k, (1, 12), guard=True),
    "above": LineOp("zero above {k}", "if x > {k}: return 0", lambda x, k: x > k, (3, 15), guard=True),
    "from": LineOp("zero from {k}", "if x >= {k}: return 0", lambda x, k: x >= k, (3, 15), guard=True),
}
BROKEN: dict[str, LineOp] = {
    "rmod": LineOp("", "x = {k} % x", lambda x, k: k % x, (2, 9)),
    "rdiv": LineOp("", "x = {k} // x", lambda x, k: k // x, (2, 5)),
    "radd": LineOp("", "x = {k} + x", lambda x, k: k + x, (3, 30)),
    "double": LineOp("", "x = x + x", lambda x, k: x + x),
}
EVERY = OPS | BROKEN


@dataclass(frozen=True, slots=True)
class OpLine:
    """One line: an operation of `EVERY` and its constant (0 where it has none)."""

    op: str
    k: int = 0

    @property
    def line(self) -> str:
        return EVERY[self.op].line.replace("{k}", str(self.k))

    @property
    def phrase(self) -> str:
        return EVERY[self.op].phrase.replace("{k}", str(self.k))


def evaluate(steps: Sequence[OpLine], x: int) -> int:
    """Meaning of the steps, in order; ZeroDivisionError where a broken line divides by zero."""
    for s in steps:
        op = EVERY[s.op]
        if not op.guard:
            x = op.apply(x, s.k)
        elif op.apply(x, s.k):
            return 0
    return x


LOW, HIGH = -9, 20
INPUTS = range(LOW, HIGH + 1)
"""Inputs of the functions."""
KEEP = 8192
"""Tables that are kept: two drafts of a repository in three are refused, and their steps come again."""
Values = tuple[int | None, ...]


class Meaning:
    """What a function computes, None where it raises; on INPUTS it is computed once."""

    def __init__(self, compute: Callable[[int], int | None], values: Callable[[], Values] | None = None) -> None:
        self.compute = compute
        self._values = values or (lambda: tuple(compute(x) for x in INPUTS))

    def __call__(self, x: int) -> int | None:
        return self.values[x - LOW] if LOW <= x <= HIGH else self.compute(x)

    @cached_property
    def values(self) -> Values:
        """On every one of INPUTS, in order."""
        return self._values()


def _value(steps: Sequence[OpLine], x: int) -> int | None:
    try:
        return evaluate(steps, x)
    except ZeroDivisionError:
        return None


@lru_cache(KEEP)
def _values(steps: tuple[OpLine, ...]) -> Values:
    return tuple(_value(steps, x) for x in INPUTS)


def meaning_of(steps: tuple[OpLine, ...]) -> Meaning:
    """Of a function that consists of these steps."""
    return Meaning(partial(_value, steps), partial(_values, steps))


def chained(parts: Sequence[Meaning]) -> Meaning:
    """Of a function that calls others one after the other."""

    def run(x: int) -> int | None:
        y: int | None = x
        for f in parts:
            if y is None:
                return None
            y = f(y)
        return y

    return Meaning(run)

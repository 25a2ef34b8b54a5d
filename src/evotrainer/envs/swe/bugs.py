"""Classes of bugs: each changes one right line. Recorded as the task tag `bug`."""

from __future__ import annotations

import random
from collections.abc import Callable

from evotrainer.envs.swe.ops import EVERY, OPS, OpLine

Mutation = Callable[[random.Random, OpLine], "OpLine | None"]
"""The wrong line that stands for the right one; None: the line is left out."""

_OPERATOR = {
    "add": ("sub", "mul"),
    "sub": ("add",),
    "rsub": ("radd",),
    "mul": ("add",),
    "mod": ("div",),
    "div": ("mod",),
    "cap": ("floor",),
    "floor": ("cap",),
    "neg": ("abs",),
    "abs": ("neg",),
    "sq": ("double",),
}
_SWAPPED = {"sub": "rsub", "rsub": "sub", "mod": "rmod", "div": "rdiv"}
_COMPARISON = {
    "below": ("upto", "above"),
    "upto": ("below", "from"),
    "above": ("from", "below"),
    "from": ("above", "upto"),
}


def _in_range(op: str, k: int) -> bool:
    low, high = EVERY[op].constants or (0, 0)
    return low <= k <= high


def _constant(rng: random.Random, s: OpLine) -> OpLine:
    low, high = EVERY[s.op].constants or (0, 0)
    far = [k for k in range(low, high + 1) if abs(k - s.k) > 1]
    return OpLine(s.op, rng.choice(far))


def _off_by_one(rng: random.Random, s: OpLine) -> OpLine:
    near = [k for k in (s.k - 1, s.k + 1) if _in_range(s.op, k)]
    return OpLine(s.op, rng.choice(near))


def _operator(rng: random.Random, s: OpLine) -> OpLine:
    return OpLine(rng.choice(_OPERATOR[s.op]), s.k)


def _swapped(rng: random.Random, s: OpLine) -> OpLine:
    return OpLine(_SWAPPED[s.op], s.k)


def _comparison(rng: random.Random, s: OpLine) -> OpLine:
    return OpLine(rng.choice(_COMPARISON[s.op]), s.k)


def _missing(rng: random.Random, s: OpLine) -> None:
    return None


BUGS: dict[str, tuple[frozenset[str], Mutation]] = {
    "wrong_constant": (frozenset(o for o, op in OPS.items() if op.constants), _constant),
    "off_by_one": (frozenset(o for o, op in OPS.items() if op.constants), _off_by_one),
    "wrong_operator": (frozenset(_OPERATOR), _operator),
    "swapped_arguments": (frozenset(_SWAPPED), _swapped),
    "wrong_comparison": (frozenset(_COMPARISON), _comparison),
    "missing_guard": (frozenset(_COMPARISON), _missing),
}
"""Name -> operations that it applies to, mutation."""


def fitting(op: str) -> list[str]:
    """Bug classes that a line of this operation can have."""
    return [name for name, (ops, _) in BUGS.items() if op in ops]


def mutate(rng: random.Random, bug: str, step: OpLine) -> OpLine | None:
    return BUGS[bug][1](rng, step)

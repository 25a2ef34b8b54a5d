"""The list operations of the code domain's grammar.

Each entry knows its English phrasings, its code variants, a reference meaning in Python (written independently of the
code variants, so that running a variant in the sandbox is a real check), and the mistakes people honestly make with it:
`slips` are wrong, `unguarded` forms are right except on an input that leaves too few items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise

Ints = list[int]


@dataclass(frozen=True, slots=True)
class ListOp:
    """A list -> list step. `{k}` in phrases and code is the constant, drawn from `constants` (inclusive)."""

    name: str
    phrases: tuple[str, ...]
    variants: tuple[str, ...]
    apply: Callable[[Ints, int], Ints]
    constants: tuple[int, int] | None = None
    slips: tuple[str, ...] = ()
    unguarded: tuple[str, ...] = ()
    grows: bool = False


def _keep(*conditions: str) -> tuple[str, ...]:
    return tuple(f"xs = [x for x in xs if {c}]" for c in conditions)


def _each(*expressions: str) -> tuple[str, ...]:
    return tuple(f"xs = [{e} for x in xs]" for e in expressions)


FILTERS = (
    ListOp(
        "even",
        ("keep the even numbers", "keep only even values", "drop the odd numbers"),
        _keep("x % 2 == 0", "not x % 2"),
        lambda xs, k: [x for x in xs if not x & 1],
        slips=_keep("x % 2 == 1"),
    ),
    ListOp(
        "odd",
        ("keep the odd numbers", "keep only odd values", "drop the even numbers"),
        _keep("x % 2 == 1", "x % 2 != 0"),
        lambda xs, k: [x for x in xs if x & 1],
        slips=_keep("x % 2 == 0"),
    ),
    ListOp(
        "above",
        ("keep numbers greater than {k}", "drop numbers up to {k}"),
        _keep("x > {k}", "{k} < x"),
        lambda xs, k: [x for x in xs if x > k],
        (1, 9),
        slips=_keep("x >= {k}"),
    ),
    ListOp(
        "below",
        ("keep numbers less than {k}", "drop numbers from {k} up"),
        _keep("x < {k}", "{k} > x"),
        lambda xs, k: [x for x in xs if x < k],
        (1, 9),
        slips=_keep("x <= {k}"),
    ),
    ListOp(
        "multiples",
        ("keep multiples of {k}", "keep numbers divisible by {k}"),
        _keep("x % {k} == 0", "not x % {k}"),
        lambda xs, k: [x for x in xs if x % k == 0],
        (2, 5),
    ),
    ListOp(
        "nonmultiples",
        ("remove multiples of {k}", "drop numbers divisible by {k}"),
        _keep("x % {k} != 0", "x % {k}"),
        lambda xs, k: [x for x in xs if x % k],
        (2, 5),
    ),
    ListOp(
        "positive",
        ("keep the positive numbers", "keep only numbers above zero"),
        _keep("x > 0", "0 < x"),
        lambda xs, k: [x for x in xs if x >= 1],
        slips=_keep("x >= 0"),
    ),
    ListOp(
        "negative",
        ("keep the negative numbers", "keep only numbers below zero"),
        _keep("x < 0", "0 > x"),
        lambda xs, k: [x for x in xs if x <= -1],
        slips=_keep("x <= 0"),
    ),
    ListOp(
        "single",
        ("keep numbers that occur once", "drop every number that is repeated"),
        _keep("xs.count(x) == 1", "xs.count(x) < 2"),
        lambda xs, k: [x for i, x in enumerate(xs) if x not in xs[:i] + xs[i + 1 :]],
        slips=("xs = list(dict.fromkeys(xs))",),
    ),
    ListOp(
        "above_mean",
        ("keep numbers above the average", "drop numbers up to the average"),
        _keep("x > sum(xs) / len(xs)", "x * len(xs) > sum(xs)"),
        lambda xs, k: [x for x in xs if len(xs) * x > sum(xs)],
        slips=_keep("x >= sum(xs) / len(xs)"),
        unguarded=("m = sum(xs) / len(xs)\nxs = [x for x in xs if x > m]",),
    ),
)

MAPS = (
    ListOp(
        "add",
        ("add {k} to each", "increase each by {k}"),
        _each("x + {k}", "{k} + x"),
        lambda xs, k: [x + k for x in xs],
        (1, 9),
    ),
    ListOp(
        "subtract",
        ("subtract {k} from each", "decrease each by {k}"),
        _each("x - {k}", "-{k} + x"),
        lambda xs, k: [x - k for x in xs],
        (1, 9),
        slips=_each("{k} - x"),
    ),
    ListOp(
        "multiply",
        ("multiply each by {k}", "scale each by {k}"),
        _each("x * {k}", "{k} * x"),
        lambda xs, k: [k * x for x in xs],
        (2, 9),
    ),
    ListOp(
        "square",
        ("square each", "replace each by its square"),
        _each("x * x", "x ** 2"),
        lambda xs, k: [pow(x, 2) for x in xs],
        slips=_each("x * 2"),
    ),
    ListOp(
        "negate",
        ("negate each", "flip the sign of each"),
        _each("-x", "0 - x"),
        lambda xs, k: [x * -1 for x in xs],
        slips=_each("abs(x)"),
    ),
    ListOp(
        "absolute",
        ("take absolute values", "drop the sign of each"),
        _each("abs(x)", "max(x, -x)"),
        lambda xs, k: [x if x > 0 else -x for x in xs],
        slips=_each("-x"),
    ),
    ListOp(
        "modulo",
        ("take each modulo {k}", "replace each by its remainder by {k}"),
        _each("x % {k}", "x - x // {k} * {k}"),
        lambda xs, k: [divmod(x, k)[1] for x in xs],
        (2, 9),
        slips=_each("abs(x) % {k}"),
    ),
    ListOp(
        "floordiv",
        ("floor divide each by {k}", "replace each by its quotient by {k} rounded down"),
        _each("x // {k}", "(x - x % {k}) // {k}"),
        lambda xs, k: [divmod(x, k)[0] for x in xs],
        (2, 5),
        slips=_each("int(x / {k})"),
    ),
    ListOp(
        "cap",
        ("cap each at {k}", "replace numbers above {k} by {k}"),
        _each("min(x, {k})", "x if x < {k} else {k}"),
        lambda xs, k: [k if x > k else x for x in xs],
        (3, 9),
        slips=_each("max(x, {k})"),
    ),
    ListOp(
        "raise",
        ("raise each to at least {k}", "replace numbers below {k} by {k}"),
        _each("max(x, {k})", "x if x > {k} else {k}"),
        lambda xs, k: [k if x < k else x for x in xs],
        (1, 5),
        slips=_each("min(x, {k})"),
    ),
    ListOp(
        "relu",
        ("replace negatives by 0", "set every negative number to 0"),
        _each("max(x, 0)", "x if x > 0 else 0"),
        lambda xs, k: [0 if x < 0 else x for x in xs],
        slips=_each("abs(x)"),
    ),
    ListOp(
        "position",
        ("multiply each by its position from 1", "scale each by its position from 1"),
        ("xs = [i * x for i, x in enumerate(xs, 1)]", "xs = [(i + 1) * x for i, x in enumerate(xs)]"),
        lambda xs, k: [(i + 1) * xs[i] for i in range(len(xs))],
        slips=("xs = [i * x for i, x in enumerate(xs)]",),
    ),
    ListOp(
        "less_min",
        ("subtract the smallest from each", "decrease each by the smallest"),
        ("xs = [x - min(xs) for x in xs]", "m = min(xs, default=0)\nxs = [x - m for x in xs]"),
        lambda xs, k: [x - sorted(xs)[0] for x in xs],
        unguarded=("m = min(xs)\nxs = [x - m for x in xs]",),
    ),
    ListOp(
        "less_first",
        ("subtract the first from each", "decrease each by the first item"),
        ("xs = [x - xs[0] for x in xs]", "m = xs[0] if xs else 0\nxs = [x - m for x in xs]"),
        lambda xs, k: [x - y for x, y in zip(xs, xs[:1] * len(xs), strict=True)],
        unguarded=("m = xs[0]\nxs = [x - m for x in xs]",),
    ),
    ListOp(
        "double_even",
        ("double the even numbers", "multiply the even numbers by 2"),
        _each("x * 2 if x % 2 == 0 else x", "x if x % 2 else x * 2"),
        lambda xs, k: [x + x * (1 - x % 2) for x in xs],
        slips=_each("x * 2 if x % 2 else x"),
    ),
    ListOp(
        "negate_odd",
        ("negate the odd numbers", "flip the sign of the odd numbers"),
        _each("-x if x % 2 else x", "x if x % 2 == 0 else -x"),
        lambda xs, k: [x * (1 - 2 * (x % 2)) for x in xs],
        slips=_each("x if x % 2 else -x"),
    ),
)


def _without(xs: Ints, pick: Callable[[Ints], int]) -> Ints:
    if not xs:
        return []
    i = xs.index(pick(xs))
    return xs[:i] + xs[i + 1 :]


ORDER = (
    ListOp(
        "sort", ("sort ascending", "sort from smallest"), ("xs = sorted(xs)", "xs.sort()"), lambda xs, k: sorted(xs)
    ),
    ListOp(
        "sort_down",
        ("sort descending", "sort from largest"),
        ("xs = sorted(xs, reverse=True)", "xs = sorted(xs)[::-1]"),
        lambda xs, k: [-x for x in sorted(-x for x in xs)],
        slips=("xs = sorted(xs)",),
    ),
    ListOp(
        "reverse",
        ("reverse the list", "read the list backwards"),
        ("xs = xs[::-1]", "xs.reverse()"),
        lambda xs, k: list(reversed(xs)),
    ),
    ListOp(
        "sort_abs",
        ("sort by absolute value", "sort by distance from zero"),
        ("xs = sorted(xs, key=abs)", "xs.sort(key=abs)"),
        lambda xs, k: [x for _, _, x in sorted((abs(x), i, x) for i, x in enumerate(xs))],
        slips=("xs = sorted(xs)",),
    ),
    ListOp(
        "rotate",
        ("move the first item to the end", "rotate the list left by one"),
        ("xs = xs[1:] + xs[:1]", "xs = [*xs[1:], *xs[:1]]"),
        lambda xs, k: [xs[(i + 1) % len(xs)] for i in range(len(xs))],
        unguarded=("xs.append(xs.pop(0))",),
    ),
)

SLICES = (
    ListOp(
        "first",
        ("take the first {k}", "keep the first {k} items"),
        ("xs = xs[:{k}]", "del xs[{k}:]"),
        lambda xs, k: [x for i, x in enumerate(xs) if i < k],
        (2, 4),
    ),
    ListOp(
        "last",
        ("take the last {k}", "keep the last {k} items"),
        ("xs = xs[-{k}:]", "del xs[:-{k}]"),
        lambda xs, k: [x for i, x in enumerate(xs) if i >= len(xs) - k],
        (2, 4),
    ),
    ListOp(
        "skip",
        ("skip the first {k}", "drop the first {k} items"),
        ("xs = xs[{k}:]", "del xs[:{k}]"),
        lambda xs, k: [x for i, x in enumerate(xs) if i >= k],
        (1, 3),
    ),
    ListOp(
        "skip_last",
        ("skip the last {k}", "drop the last {k} items"),
        ("xs = xs[:-{k}]", "del xs[-{k}:]"),
        lambda xs, k: [x for i, x in enumerate(xs) if i < len(xs) - k],
        (1, 3),
    ),
    ListOp(
        "every_second",
        ("take every second item from the first", "keep items at positions 1 3 5 and so on"),
        ("xs = xs[::2]", "del xs[1::2]"),
        lambda xs, k: [x for i, x in enumerate(xs) if not i & 1],
        slips=("xs = xs[1::2]",),
    ),
    ListOp(
        "drop_max",
        ("remove one largest item", "drop the first largest item"),
        ("if xs: xs.remove(max(xs))", "xs.remove(max(xs)) if xs else None"),
        lambda xs, k: _without(xs, max),
        unguarded=("xs.remove(max(xs))",),
    ),
    ListOp(
        "drop_min",
        ("remove one smallest item", "drop the first smallest item"),
        ("if xs: xs.remove(min(xs))", "xs.remove(min(xs)) if xs else None"),
        lambda xs, k: _without(xs, min),
        unguarded=("xs.remove(min(xs))",),
    ),
)

STRUCTURE = (
    ListOp(
        "unique",
        ("remove duplicates keeping order", "keep the first of equal numbers"),
        ("xs = list(dict.fromkeys(xs))", "xs = [x for i, x in enumerate(xs) if x not in xs[:i]]"),
        lambda xs, k: [x for i, x in enumerate(xs) if xs.index(x) == i],
        slips=("xs = sorted(set(xs))",),
    ),
    ListOp(
        "differences",
        ("take differences of neighbors", "replace the list by each next minus this"),
        (
            "xs = [b - a for a, b in zip(xs, xs[1:])]",
            "xs = [xs[i + 1] - xs[i] for i in range(len(xs) - 1)]",
        ),
        lambda xs, k: [b - a for a, b in pairwise(xs)],
        slips=("xs = [a - b for a, b in zip(xs, xs[1:])]",),
    ),
    ListOp(
        "neighbor_sums",
        ("take sums of neighbors", "replace the list by each next plus this"),
        (
            "xs = [a + b for a, b in zip(xs, xs[1:])]",
            "xs = [xs[i] + xs[i + 1] for i in range(len(xs) - 1)]",
        ),
        lambda xs, k: [sum(p) for p in pairwise(xs)],
    ),
    ListOp(
        "running_sum",
        ("take running sums", "replace each by the sum so far"),
        (
            "xs = [sum(xs[:i + 1]) for i in range(len(xs))]",
            "xs = [sum(xs[:i]) for i in range(1, len(xs) + 1)]",
        ),
        lambda xs, k: list(accumulate(xs)),
        slips=("xs = [sum(xs[:i]) for i in range(len(xs))]",),
    ),
    ListOp(
        "running_max",
        ("take running maximums", "replace each by the largest so far"),
        (
            "xs = [max(xs[:i + 1]) for i in range(len(xs))]",
            "xs = [max(xs[:i]) for i in range(1, len(xs) + 1)]",
        ),
        lambda xs, k: list(accumulate(xs, max)),
    ),
    ListOp(
        "repeat",
        ("repeat each twice", "write each number two times"),
        ("xs = [x for x in xs for _ in range(2)]", "xs = [y for x in xs for y in (x, x)]"),
        lambda xs, k: [xs[i // 2] for i in range(2 * len(xs))],
        slips=("xs = xs + xs",),
        grows=True,
    ),
    ListOp(
        "mirror",
        ("append the reversed list", "add the list backwards at the end"),
        ("xs = xs + xs[::-1]", "xs += xs[::-1]"),
        lambda xs, k: [*xs, *reversed(xs)],
        slips=("xs = xs + xs",),
        grows=True,
    ),
)
OPS: dict[str, ListOp] = {o.name: o for o in (*FILTERS, *MAPS, *ORDER, *SLICES, *STRUCTURE)}

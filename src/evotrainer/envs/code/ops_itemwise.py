"""Operations that look at one number after the other: filters and maps."""

from __future__ import annotations

from evotrainer.envs.code.op import ListOp


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

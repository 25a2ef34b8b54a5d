"""Operations on the list as a whole: its order, parts of it, its structure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise

from evotrainer.envs.code.op import Ints, ListOp


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

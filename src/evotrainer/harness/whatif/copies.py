"""Finds code that reproduces the outcome itself, under whatever name and in whatever dress (docs/decisions.md, 24).

Ranks are looked at, not values: jitter, a third value, the other sign and a threshold leave them. And each expression
within a function is looked at, not only its answer: errors planted behind a comparison and sums with something else
leave the comparison.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any, Literal

import numpy as np

from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import Floats
from evotrainer.records.hooks import HookCaller
from evotrainer.records.recipe import Recipe
from evotrainer.records.written import ENTRY

MISSED = 0.01
"""Share of (correct, incorrect) pairs below which values are a copy, ties half: 1 - AUC."""
TINY = 1e-12
"""Above no wrong pair at all, below one."""
SEEN = 20
"""Rollouts of each outcome from which on such an order is more than chance."""
COVERED = 0.75
"""Share of the rollouts of either outcome on which an expression is evaluated, at least, to be judged by itself."""
FIRST, TRACED = 28, 150
"""Rollouts of either outcome on which expressions are followed first, and where one looks like a copy."""
ROUGHLY = 0.05
"""What looks like one: share of pairs that it ranks wrongly, at most."""
_NUMBERS = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Call, ast.Subscript, ast.IfExp, ast.NamedExpr,
            ast.Name, ast.ListComp, ast.SetComp)  # fmt: skip


def ranking_error(values: Floats, truth: Floats) -> float:
    """Share of (correct, incorrect) pairs that values rank wrongly, ties half, whichever way round they rank; NaN
    where fewer than `SEEN` rollouts of either outcome are known. Both (N,)."""
    ok = ~(np.isnan(values) | np.isnan(truth))
    right, wrong = np.sort(values[ok & (truth > 0.5)]), values[ok & (truth < 0.5)]
    if min(len(right), len(wrong)) < SEEN:
        return float("nan")
    below = np.searchsorted(right, wrong, "left") + np.searchsorted(right, wrong, "right")
    share = float(below.sum()) / (2 * len(right) * len(wrong))
    return min(share, 1 - share)


def untied(values: Floats, truth: Floats) -> float:
    """The same, ties none: what the best order leaves that only breaks ties. Both (N,)."""
    ok = ~(np.isnan(values) | np.isnan(truth))
    right, wrong = np.sort(values[ok & (truth > 0.5)]), values[ok & (truth < 0.5)]
    lower, higher = np.searchsorted(right, wrong, "left"), len(right) - np.searchsorted(right, wrong, "right")
    return float(min(lower.sum(), higher.sum())) / (len(right) * len(wrong))


def least_left(offered: Mapping[str, Floats], truth: Floats) -> float:
    """What the best two components on offer leave together, ties half; 1 where none is."""
    left = (ranking_error(a + b, truth) for a, b in combinations_with_replacement(offered.values(), 2))
    return min((x for x in left if x == x), default=1.0)


def limit(offered: Mapping[str, Floats], truth: Floats) -> float:
    """Below what share of wrong pairs values are a copy: `MISSED`, or where the best two components on offer leave less
    than twice as much together, as these are for sale, half of what they leave however their ties are broken, as what
    they are added to breaks them. Where they leave nothing, nothing is a copy."""
    sums = (a + b for a, b in combinations_with_replacement(offered.values(), 2))
    return min([MISSED, *(untied(s, truth) / 2 for s in sums if ranking_error(s, truth) < 2 * MISSED)])


def on_offer(batch: Batch, unpayable: Collection[str]) -> dict[str, Floats]:
    """Values of the components that may be paid and apply nearly everywhere, none of them code of a recipe."""
    names = (n for n in batch.component_names if n not in unpayable and "@" not in n)
    return {n: v for n in names if float((~np.isnan(v := batch.component(n))).mean()) >= COVERED}


def hook_copies(
    batch: Batch, unpayable: Collection[str], own: Floats, advantages: Floats | None, weights: Floats | None
) -> str:
    """Why what a hook answers is the outcome; empty where it is not, or where the advantages of the recipe's own rules,
    `own`, tell it already. Each (N,); None: it answers no such thing. Groups of one outcome give no advantage."""
    group, truth = batch.group, batch.truth
    ok = ~np.isnan(truth)
    right = np.bincount(group[ok], weights=truth[ok], minlength=batch.n_groups)
    mixed = (right > 0) & (right < np.bincount(group[ok], minlength=batch.n_groups))
    known = np.where(mixed[group], truth, np.nan)
    if not unpayable or ranking_error(own, known) <= MISSED:
        return ""
    offered = on_offer(batch, unpayable)
    most, left = limit(offered, truth), least_left(offered, truth)
    # what a hook answers cannot be asked for beside another rollout's components: without an error it is a copy
    most = most or (TINY if left > 0 else 0.0)
    for name, values, of in (("advantages", advantages, known), ("weights", weights, truth)):
        if values is not None and (why := copied(values, of, most)):
            return f"{name}: {why}"
    return ""


def new_code(old: Recipe, new: Recipe, kind: Literal["written", "hooks"]) -> dict[str, str]:
    """Sources that a recipe, or one that it goes on from, holds, and another does not."""
    known = {n for r in old.chain for n in getattr(r, kind)}
    return {n: s for r in new.chain for n, s in getattr(r, kind).items() if n not in known}


def copied(values: Floats, truth: Floats, most: float = MISSED) -> str:
    """Why values are the outcome under another name, which is not for sale; empty where they are not. Both (N,)."""
    share = ranking_error(values, truth)
    if not share < most:
        return ""
    n = int((~(np.isnan(values) | np.isnan(truth))).sum())
    share_text = f"{1 - share:.1%} of the pairs" if share else "all pairs"
    return (
        f"it tells the outcome itself, {share_text} of correct and incorrect among {n} rollouts, which is not for sale"
    )


def within(
    source: str, shown: Sequence[dict[str, Any]], truth: Floats, own: Sequence[Floats], caller: HookCaller, most: float
) -> tuple[str, str] | None:
    """(label, why) where an expression of a component is the outcome's copy, whatever becomes of it; None: none is.

    `own`: values of the components on offer: to read one is no copy, nor is the length of what is shown. What
    fails only where it is followed is not to be trained either: it could be made to.
    """
    if most <= 0 or min(int((truth == t).sum()) for t in (1.0, 0.0)) < SEEN:
        return None
    try:
        traced, entry, lines = _traced(source)
    except (RecursionError, ValueError):
        return "unparsable", "it is nested too deeply to be followed"
    why = ""
    for each, least in ((FIRST, ROUGHLY), (TRACED, most)):
        places = [i for t in (1.0, 0.0) for i in np.flatnonzero(truth == t)[:each].tolist()]
        traced_answers = caller.call(traced, entry, [(shown[i],) for i in places])
        if len(traced_answers.failed) > (1 - COVERED) * len(places):
            return (
                "probe_failed",
                f"followed expression by expression: {traced_answers.failed[min(traced_answers.failed)]}",
            )
        columns, sized = np.full((3 * len(lines), len(places)), np.nan), np.ones(len(lines), bool)
        for k, row in enumerate(traced_answers.values):
            for at, *three, size in row or ():
                columns[3 * at : 3 * at + 3, k] = three
                sized[at] &= size
        kept, long = truth[places], _lengths([shown[i] for i in places])
        at_hand = [v[places] for v in own]
        # where the length of what is shown tells as much, lengths of what is made of it (lines, words) tell nothing new
        distance = min((x for v in long if (x := ranking_error(v, kept)) == x), default=1.0)
        most_at = [min(least, distance) if size else least for size in sized]
        found = (n for n, c in enumerate(columns) if _is_copy(c, kept, most_at[n // 3], at_hand, long))
        if (n := next(found, None)) is None:
            return None
        why = f"line {lines[n // 3]}: {copied(columns[n], kept, least)}, whatever is made of it"
    return "reads_protected", why


def _is_copy(values: Floats, truth: Floats, most: float, own: Sequence[Floats], long: Sequence[Floats]) -> bool:
    known = ~np.isnan(values)
    if min(float(known[truth == t].mean()) for t in (1.0, 0.0)) < COVERED or not ranking_error(values, truth) < most:
        return False
    return not (_among(values, own, np.array_equal) or _among(values, long, _same_order))


def is_length(values: Floats, shown: Sequence[dict[str, Any]]) -> bool:
    """Do values rank the rollouts as the length of something that is shown does, either way round?"""
    return _among(values, _lengths(shown), _same_order)


def _among(values: Floats, own: Sequence[Floats], same: Callable[[Floats, Floats], bool]) -> bool:
    known = ~np.isnan(values)
    both = [(v, known & ~np.isnan(v)) for v in own]
    return any(b.sum() >= COVERED * known.sum() and same(values[b], v[b]) for v, b in both)


def _same_order(a: Floats, b: Floats) -> bool:
    ranks, other = (np.unique(x, return_inverse=True)[1] for x in (a, b))
    # of two lengths each threshold makes the same order: there only the last index is the length
    if other.max(initial=0) < 2:
        return len(set((a - b).tolist())) < 2
    return np.array_equal(ranks, other) or np.array_equal(ranks, other.max() - other)


def _lengths(shown: Sequence[dict[str, Any]]) -> list[Floats]:
    """Least, largest and last length of the texts and lists at each place of the evidence, by role as well; (N,) each,
    NaN where a rollout has none."""
    rows: list[dict[str, list[int]]] = []
    for one in shown:
        row: dict[str, list[int]] = {}
        _measure(one, "", row)
        rows.append(row)
    return [
        np.array([pick(row[k]) if k in row else np.nan for row in rows], dtype=np.float64)
        for k in sorted({k for row in rows for k in row})
        for pick in (min, max, lambda x: x[-1])
    ]


def _measure(value: Any, at: str, row: dict[str, list[int]]) -> None:
    if isinstance(value, str | list | dict):
        row.setdefault(at, []).append(len(value))
    for v in value if isinstance(value, list) else ():
        for kind in ("", *([f"={v['role']}"] if isinstance(v, dict) and "role" in v else [])):
            _measure(v, f"{at}{kind}", row)
    for k, v in value.items() if isinstance(value, dict) else ():
        _measure(v, f"{at}/{k}", row)


def _traced(source: str) -> tuple[str, str, list[int]]:
    """(source, function to call, line of each expression): a component that answers [number of an expression, least,
    largest and last value, are these lengths] for each that was evaluated. What is no number counts by its length."""
    mark = f"kept_{hashlib.sha256(source.encode('utf-8', 'replace')).hexdigest()[:12]}"
    follower = _Follower(mark)
    tree = ast.fix_missing_locations(follower.visit(ast.parse(source)))
    return (
        f"{_NOTE.replace('KEPT', mark).replace('ENTRY', ENTRY)}\n{ast.unparse(tree)}\n",
        f"{mark}_all",
        follower.lines,
    )


# its built-in names are bound before the source could define others
_NOTE = """
KEPT_seen = {}
def KEPT(at, value, bool=bool, int=int, float=float, len=len, isinstance=isinstance, Exception=Exception):
    try:
        number = isinstance(value, (bool, int, float))
        x = float(value) if number else 0.0 if value is None else float(len(value))
    except Exception:
        return value
    if x != x or x - x != 0:
        return value
    row = KEPT_seen.get(at)
    if row is None:
        KEPT_seen[at] = [x, x, x, not number]
        return value
    if x < row[0]:
        row[0] = x
    if x > row[1]:
        row[1] = x
    row[2] = x
    if number:
        row[3] = False
    return value
def KEPT_all(rollout):
    KEPT_seen.clear()
    ENTRY(rollout)
    return [[at, *row] for at, row in KEPT_seen.items()]
"""


class _Follower(ast.NodeTransformer):
    """Hands the value of each expression to the function `mark`."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.lines: list[int] = []

    def visit(self, node: ast.AST) -> Any:
        # patterns hold no expressions of their own, and Python 3.11 cannot write a call within an f-string
        if isinstance(node, ast.pattern | ast.JoinedStr):
            return node
        called = node.func if isinstance(node, ast.Call) else None
        self.generic_visit(node)
        if isinstance(node, ast.Call) and isinstance(called, ast.Name):
            node.func = called  # the name of a function has no value of interest
        if not isinstance(node, _NUMBERS) or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return node
        self.lines.append(node.lineno)
        return ast.Call(ast.Name(self.mark, ast.Load()), [ast.Constant(len(self.lines) - 1), node], [])

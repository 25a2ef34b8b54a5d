"""Reward components written from contrasts: what tells right attempts from wrong ones that are paid alike, as code.

Clauses are made from the evidence itself: how the program's runs ended, by kind of test; patterns that the admitted
detectors find in answers. Each is held against the outcome within cells of one group and one pay, on one half of
the tasks (errors clustered by task, the level divided by the number of clauses), and must hold on the other half. The
best becomes a function; what it leaves is mined once more for a second clause. Only search rollouts are read, and the
function itself is handed no outcome.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evotrainer.harness.columns.numerics import Floats, Ints, centred, group_sums
from evotrainer.records.briefing import WrittenOffer
from evotrainer.records.detectors import DetectorSpec
from evotrainer.records.written import content_name

LEVEL = 0.01
"""Error probability of the whole mining of a step (Bonferroni), and of each confirmation."""
LEAST_SHARE, MOST_SHARE = 0.03, 0.97
"""Of rollouts that meet a clause: others say next to nothing."""
LEAST_CORRELATION = 0.15
"""With the outcome, within cells, on the half that was not mined."""
LEAST_GAIN = 0.02
"""What a further clause must add to it."""
BETTER = 0.03
"""By how much more than every component on offer it must go with the outcome: what is there is not written again."""
MOST_CLAUSES = 3
LEAST_KNOWN = 18
"""Rollouts with a known outcome."""
_IDENTIFIER = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Clause:
    """A condition on a rollout's evidence, as Python and in words."""

    breach: str
    """Where this expression over `rollout` is true, it does not hold."""
    about: str
    """After `1 when `."""
    name: str
    holds: Callable[[Mapping[str, Any]], bool]


def write(
    shown: Sequence[Mapping[str, Any]],
    truth: Floats,
    pay: Floats,
    group: Ints,
    task: Ints,
    odd: np.ndarray,
    offered: Mapping[str, Floats],
    detectors: Iterable[DetectorSpec] = (),
) -> WrittenOffer | None:
    """The component that the evidence asks for, with what it showed on the half that was not mined; None where nothing
    new stands out.

    All (N,): `shown` evidence, `truth` 1, 0 or NaN, `pay` under the present recipe, group and task by number, `odd`
    tasks of the half that confirms. `offered`: values of the components that may be paid, each (N,).
    """
    known = np.flatnonzero(~np.isnan(truth))
    if len(known) < LEAST_KNOWN:
        return None
    x = Contrast(truth, _cells(group, np.round(pay, 6)), task, odd)
    best_on_offer = max((x.correlation(v, held=True) for v in offered.values()), default=0.0)
    pool = [*run_clauses(shown), *detector_clauses(detectors)]
    columns = [np.array([float(c.holds(e)) for e in shown]) for c in pool]
    taken: list[Clause] = []
    met = np.ones(len(shown))
    compared = 0
    for _ in range(MOST_CLAUSES):
        # a further clause is asked of those that meet the ones so far
        options = [
            (c, np.where(met > 0, col, np.nan))
            for c, col in zip(pool, columns, strict=True)
            if c not in taken and LEAST_SHARE <= float(col[met > 0].mean()) <= MOST_SHARE
        ]
        compared += len(options)
        found = x.best([v for _, v in options])
        if found is None:
            break
        both = np.nan_to_num(options[found][1])
        if x.correlation(both, held=True) < max(LEAST_CORRELATION, x.correlation(met, held=True) + LEAST_GAIN):
            break
        taken.append(options[found][0])
        met = both
    if not taken:
        return None
    shown_by = x.correlation(met, held=True)
    if shown_by < best_on_offer + BETTER:
        return None
    name, source, about = _function(taken)
    return WrittenOffer(
        name=content_name(name, source),
        source=source,
        about=about,
        correlation=round(shown_by, 6),
        best_on_offer=round(best_on_offer, 6),
        compared=compared,
    )


class Contrast:
    """Right against wrong attempts of one cell, on a mined and on a held-out half of the tasks."""

    def __init__(self, truth: Floats, cells: Ints, task: Ints, odd: np.ndarray) -> None:
        self.truth, self.cells, self.task, self.odd = truth, cells, task, odd
        self.n_cells = int(cells.max()) + 1 if len(cells) else 0
        self.n_tasks = int(task.max()) + 1 if len(task) else 0

    def _centred(self, value: Floats, held: bool) -> tuple[Floats, Floats, Ints]:
        ok = ~(np.isnan(value) | np.isnan(self.truth)) & (self.odd == held)
        count, right = group_sums(np.where(ok, self.truth, np.nan), self.cells, self.n_cells)
        # where all are right, or all wrong, nothing is told apart
        ok &= ((right > 0) & (right < count))[self.cells]
        cells = self.cells[ok]
        return (
            centred(value[ok], cells, self.n_cells),
            centred(self.truth[ok], cells, self.n_cells),
            self.task[ok],
        )

    def correlation(self, value: Floats, held: bool) -> float:
        """Pooled over cells; 0 where either does not vary within any."""
        v, y, _ = self._centred(value, held)
        sv, sy = float((v * v).sum()), float((y * y).sum())
        return float((v * y).sum()) / math.sqrt(sv * sy) if sv > 1e-12 and sy > 1e-12 else 0.0

    def z(self, value: Floats, held: bool) -> float:
        """Sum of products over its standard error, clustered by task; 0 where nothing varies."""
        v, y, task = self._centred(value, held)
        sums = np.bincount(task, weights=v * y, minlength=self.n_tasks)
        se = math.sqrt(float((sums * sums).sum()))
        return float(sums.sum()) / se if se > 1e-12 else 0.0

    def best(self, values: Sequence[Floats]) -> int | None:
        """Place of the value that goes with the outcome most, significantly on both halves; None where none does."""
        from statistics import NormalDist

        if not values:
            return None
        level = NormalDist().inv_cdf(1 - LEVEL / len(values))
        passed = [i for i, v in enumerate(values) if self.z(v, held=False) >= level]
        passed.sort(key=lambda i: (-round(self.correlation(values[i], held=False), 2), i))
        if not passed or self.z(values[passed[0]], held=True) < NormalDist().inv_cdf(1 - LEVEL):
            return None
        return passed[0]


def _cells(group: Ints, pay: Floats) -> Ints:
    """Number of each rollout's (group, pay)."""
    both = np.stack([group.astype(np.float64), np.nan_to_num(pay, nan=-1e9)], axis=1)
    _, at = np.unique(both, axis=0, return_inverse=True)
    return np.asarray(at).reshape(-1).astype(np.int64)


# -- clauses -----------------------------------------------------------------------------------------------------------


def run_clauses(shown: Sequence[Mapping[str, Any]]) -> Iterator[Clause]:
    """Of the recorded runs, of one kind or all: none ended so; all did."""
    seen: dict[tuple[str, str, Any], None] = {}
    for e in shown:
        for t in e["tests"]:
            for field in ("status", "passed"):
                if isinstance(value := t.get(field), str | bool):
                    seen[(str(t.get("kind", "")), field, value)] = None
                    seen[("", field, value)] = None
            if "got" in t:
                seen[(str(t.get("kind", "")), "got", "")] = None
    # of clauses that say the same the first is taken: one kind before all, how it ended before whether it passed
    for kind, field, value in sorted(seen, key=lambda k: (not k[0], k[1] != "status", repr(k))):
        which = 'rollout["tests"]' + (f' if t.get("kind") == {json.dumps(kind)}' if kind else "")
        of = f"{kind} run" if kind else "recorded run"
        clause = f"has {field} {value!r}" if value != "" else f"has an empty {field}"
        tag = f"{kind or 'run'}_{field}_{value if value != '' else 'empty'}"
        same = "==" if isinstance(value, str) else "is"
        test = (
            f't.get("{field}") {same} {_literal(value)}' if value != "" else f'not str(t.get("{field}") or "").strip()'
        )
        yield Clause(
            f"any({test} for t in {which})", f"no {of} {clause}", f"no_{tag}", _runs(kind, field, value, some=False)
        )
        yield Clause(
            f"not all({test} for t in {which})",
            f"every {of} {clause}",
            f"all_{tag}",
            _runs(kind, field, value, some=True),
        )


def _literal(value: str | bool) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _runs(kind: str, field: str, value: Any, some: bool) -> Callable[[Mapping[str, Any]], bool]:
    def met(t: Mapping[str, Any]) -> bool:
        return t.get(field) == value if value != "" else not str(t.get(field) or "").strip()

    def holds(e: Mapping[str, Any]) -> bool:
        mine = [t for t in e["tests"] if not kind or t.get("kind") == kind]
        return all(map(met, mine)) if some else not any(map(met, mine))

    return holds


def detector_clauses(detectors: Iterable[DetectorSpec]) -> Iterator[Clause]:
    """Not what an admitted detector finds in the answer."""
    for d in detectors:
        if d.form == "pattern" and d.where == "answer" and (rule := _compiled(d.pattern)) is not None:
            text = '"\\n".join(t["text"] for t in rollout["turns"] if t["role"] == "assistant")'
            yield Clause(
                f"re.search({d.pattern!r}, {text}, re.M)",
                f"not what {d.name} finds",
                f"not_{d.name}",
                lambda e, rule=rule: not rule.search(_answer(e)),  # type: ignore[misc]
            )


def _answer(e: Mapping[str, Any]) -> str:
    return "\n".join(t["text"] for t in e["turns"] if t["role"] == "assistant")


def _compiled(pattern: str) -> re.Pattern[str] | None:
    """The expression where Python's engine reads it as well."""
    try:
        return re.compile(pattern, re.M)
    except re.error:
        return None


def _function(taken: Sequence[Clause]) -> tuple[str, str, str]:
    """(name, source, what it measures)."""
    name = _IDENTIFIER.sub("_", "_and_".join(c.name for c in taken).lower()).strip("_")[:48].strip("_")
    about = "1 when " + " and ".join(c.about for c in taken) + "."
    docstring = about.replace("\\", "/").replace('"', "'")
    lines = ["import re", "", ""] if any("re.search(" in c.breach for c in taken) else []
    lines += ["def reward(rollout):", f'    """{docstring}"""']
    lines += [f"    if {c.breach}:\n        return 0.0" for c in taken]
    return name if name[:1].isalpha() else f"c_{name}"[:48], "\n".join([*lines, "    return 1.0", ""]), about

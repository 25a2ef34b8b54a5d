"""Where things go on a percent axis: the report draws intervals and bars in percent of the cell, so they stay sharp
and fit any width without scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from evotrainer.views.model import TRAININGS, BranchView, RunView
from evotrainer.views.summary import change_of


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear axis; `at` answers in percent of its width."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float], include: Iterable[float] = (), pad: float = 0.06) -> Axis:
        """The smallest axis that shows all values, with `pad` of its length free on both sides."""
        seen = [*values, *include]
        low, high = (min(seen), max(seen)) if seen else (0.0, 1.0)
        room = max(high - low, 1e-3) * pad
        return cls(low - room, high + room)

    def at(self, x: float) -> str:
        """Position of `x`, clamped to the axis, as `12.34%`."""
        return f"{100 * self.share(x):.2f}%"

    def down(self, x: float) -> str:
        """The same from the top of a plot, with room for labels below."""
        return f"{3 + 87 * (1 - self.share(x)):.2f}%"

    def span(self, a: float, b: float) -> str:
        """Width between two values, as `12.34%`."""
        return f"{100 * max(self.share(b) - self.share(a), 0):.2f}%"

    def share(self, x: float) -> float:
        return min(max((x - self.low) / (self.high - self.low), 0.0), 1.0)

    def ticks(self, most: int = 5) -> list[float]:
        """At most `most` round values inside the axis."""
        rough = (self.high - self.low) / most
        step = 10 ** math.floor(math.log10(rough))
        step = next(step * m for m in (1, 2, 5, 10, 20) if step * m >= rough)
        first = math.ceil(self.low / step)
        return [round(k * step, 10) for k in range(first, math.floor(self.high / step) + 1)]


def effect_axis(view: RunView) -> Axis:
    """One axis for the effects of all branches, 0 and the noise floor always on it."""
    both = ((b.effect, b.verdict.effect if b.verdict else None) for b in view.branches.values())
    effects = [e for pair in both for e in pair if e]
    values = [x for e in effects for x in (e.low, e.high, e.noise_floor)]
    return Axis.over(values, include=(0.0, -0.02, 0.02))


@dataclass(frozen=True, slots=True)
class CostPoint:
    """A branch, or a search training, in the plot of score against compute."""

    name: str
    kind: str
    """Status of the branch, or `probe`."""
    cpu_s: float
    """Mean CPU-seconds of a training with its evaluations."""
    score: float
    """On the search split, share of correct attempts."""
    change: str


@dataclass(frozen=True, slots=True)
class CostPlot:
    """Score on search against the compute of one training."""

    points: tuple[CostPoint, ...]
    x: Axis
    y: Axis


def cost_points(view: RunView) -> CostPlot | None:
    """Every branch and search training that has a score; None where there are fewer than two."""
    found = []
    for b in (*view.probes.values(), *view.branches.values()):
        done = [t.finished for t in b.trials if t.purpose in TRAININGS or b.name in view.probes]
        cost = [t.computed_cpu_s for t in done if t and t.steps]
        score = b.mean("search") if b.name not in view.probes else probe_score(b)
        if b.recipe is not None and cost and score is not None:
            kind = "probe" if b.name in view.probes else b.status
            found.append(CostPoint(b.name, kind, sum(cost) / len(cost), score, change_of(b)))
    if len(found) < 2:
        return None
    costs = Axis.over((p.cpu_s for p in found), include=(0.0,))
    return CostPlot(tuple(found), Axis(0.0, costs.high), Axis.over(p.score for p in found))


def probe_score(b: BranchView) -> float | None:
    """Search score of a search training."""
    return next((s.score for t in b.trials if (s := t.score("search"))), None)


def score_axis(view: RunView) -> Axis:
    """Axis of the certification plot, shares in [0, 1]."""
    rows = view.certified.rows if view.certified else ()
    axis = Axis.over([x for r in rows for x in (r.low, r.high, *r.per_seed)], pad=0.12)
    return Axis(max(axis.low, 0.0), min(axis.high, 1.0))

"""Places values on a percent axis: the report draws intervals and bars in percent of the cell, so they stay sharp
and fit any width without scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from evotrainer.views.model import RunView


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


def score_axis(view: RunView) -> Axis:
    """Axis of the certification plot, shares in [0, 1]."""
    rows = view.certified.rows if view.certified else ()
    axis = Axis.over([x for r in rows for x in (r.low, r.high, *r.per_seed)], pad=0.12)
    return Axis(max(axis.low, 0.0), min(axis.high, 1.0))

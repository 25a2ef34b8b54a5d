"""Search trainings and what they taught of each change, as readers see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evotrainer.projections.text import change, number, percent, points, value
from evotrainer.records.events import Searched
from evotrainer.records.search import FactorEffect, ProbeRecord
from evotrainer.records.text import counted
from evotrainer.views.model import RunView
from evotrainer.views.plots import Axis

Z = 1.96
"""Half width of the intervals shown, in posterior standard deviations: 95% where the posterior is normal."""
BEST = 3
"""Changes named in one line."""


@dataclass(frozen=True, slots=True)
class FactorBelief:
    """One value of one factor: its effect against the starting recipe's value, with its interval."""

    what: str
    mean: float
    low: float
    high: float
    trainings: int
    kind: str
    """promote: the interval is above 0; reject: below; inconclusive: it holds 0. Colours only; nothing was promoted."""


@dataclass(frozen=True, slots=True)
class SearchRound:
    """One round's search: its trainings, why it ended, what was believed then."""

    number: int
    trainings: list[ProbeRecord]
    ended: Searched | None

    @property
    def effects(self) -> list[FactorBelief]:
        """Of each change that was in force in a training, largest mean first."""
        return [believed(e) for e in self.ended.effects] if self.ended else []


def believed(e: FactorEffect) -> FactorBelief:
    low, high = e.mean - Z * e.sd, e.mean + Z * e.sd
    kind = "promote" if low > 0 else "reject" if high < 0 else "inconclusive"
    return FactorBelief(f"{e.factor} = {value(e.value)}", e.mean, low, high, e.trainings, kind)


def search_rounds(view: RunView) -> list[SearchRound]:
    """The rounds that searched, in order."""
    records = [p.record() for p in view.state.probes.values()]
    ended = {s.round: s for s in view.state.searched}
    numbers = sorted({r.round for r in records} | {n for n, s in ended.items() if s.probes})
    return [SearchRound(n, [r for r in records if r.round == n], ended.get(n)) for n in numbers]


def belief_axis(rounds: Sequence[SearchRound]) -> Axis:
    """One axis for the effects of all rounds, 0 always on it."""
    return Axis.over([x for r in rounds for e in r.effects for x in (e.low, e.high)], include=(0.0, -0.02, 0.02))


def changes_of(p: ProbeRecord, view: RunView) -> str:
    """A training's changes against its incumbent, `factor: old → new; ...`."""
    old = view.state.branches[p.incumbent].recipe if p.incumbent in view.state.branches else None
    return "; ".join(change(f, old.value(f) if old else None, new) for f, new in sorted(p.changes.items()))


def score_of(p: ProbeRecord) -> str:
    """A training's search score, or why there is none."""
    shown = percent(p.score) if p.score is not None else p.failed or "not finished"
    return shown + (f", questioned by {', '.join(p.invalid)}" if p.invalid else "")


def search_line(view: RunView) -> str:
    """The last round's search in one line; empty where nothing was searched."""
    rounds = search_rounds(view)
    if not rounds:
        return ""
    last = rounds[-1]
    done = sum(len(r.trainings) for r in rounds)
    text = f"{counted(done, 'search training')} in {counted(len(rounds), 'round')}"
    if last.ended is None:
        return text
    best = [
        f"{e.what} {points(e.mean)} ± {number(100 * (e.high - e.mean), 2)} points ({counted(e.trainings, 'training')})"
        for e in last.effects[:BEST]
        if e.mean > 0
    ]
    noise = f"; {number(100 * last.ended.noise_sd, 2)} points of noise each" if last.ended.noise_sd else ""
    return (
        text
        + noise
        + (f"; best, estimated from all of them: {'; '.join(best)}" if best else "")
        + f"; ended since {last.ended.stop}"
    )

"""Cases in a terminal and in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evotrainer.projections.history import cases
from evotrainer.projections.run_facts import STATUS, status_of
from evotrainer.projections.state import RunState
from evotrainer.projections.text import change, one_line
from evotrainer.projections.trials import LabelledTrial, labelled
from evotrainer.records.briefing import Case
from evotrainer.records.chain import Event
from evotrainer.views.tables import word_table

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class RunMemory:
    """What the report shows of a run's memory."""

    cases: Sequence[Case] = ()
    taught: Sequence[tuple[str, str, str]] = ()
    """(skill, branch, kind of trial) of each skill event, in order."""
    library: Mapping[str, str] = field(default_factory=dict)
    """Skills of the library -> content hash."""
    trials: Sequence[LabelledTrial] = ()
    """Every trial, with what became of it."""

    @classmethod
    def of(cls, events: Sequence[Event]) -> RunMemory:
        return cls(
            cases=cases(events),
            taught=[(e.body.skill, e.body.branch, _taught(e.body.trial)) for e in events if e.kind == "skill"],
            trials=labelled(events),
            library=next((dict(e.body.skills) for e in events if e.kind == "library"), {}),
        )


def _taught(t: object) -> str:
    mean, kind = getattr(t, "mean", None), getattr(t, "kind", "")
    return kind if mean is None else f"{kind}, {100 * mean:+.1f} points"


def points(mean: float, sd: float) -> str:
    return f"{100 * mean:+.1f} ± {100 * sd:.1f}"


def render_cases(rows: Sequence[Case], state: RunState) -> Table:
    """One line per branch of a run in this state."""
    table = []
    for c in rows:
        seen = ",\n".join(f"{one_line(k)} (severity {v:.2f})" for k, v in list(c.seen.items())[:3]) or "sound"
        expected = points(c.forecast.mean, c.forecast.sd) if c.forecast else ""
        if c.forecast and c.forecast.promote is not None:
            expected += f",\n{c.forecast.promote:.0%} promoted"
        b = state.branches[c.branch]
        happened = c.kind or STATUS[status_of(b, state, False)]
        if c.effect:
            happened += f" {c.effect.told(c.on_fresh_seeds)}"
        tried = change(c.factor, c.old, c.new) + (f" (reopens {c.reopens})" if c.reopens else "")
        # what a control predicts is what the change that it is trained for does
        came = "" if b.matches else {True: "yes", False: "no", None: "not measured"}[c.came_true]
        table.append((c.branch, seen, tried, expected, happened, came))
    return word_table(("branch", "seen", "tried", "expected", "happened", "came true"), table)

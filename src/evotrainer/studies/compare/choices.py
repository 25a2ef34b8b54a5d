"""What an arm would have answered after each of its trainings, read from a run's events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evotrainer.projections.branches import START
from evotrainer.projections.state import RunState
from evotrainer.records.chain import Event
from evotrainer.records.recipe import Recipe
from evotrainer.records.search import SearchChoice

TRAININGS = ("noise", "branch", "probe", "confirm")
"""Purposes of trainings that count: all but those of the certificate, which is proof."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A recipe that an arm stood by, from some number of trainings on."""

    trainings: int
    recipe: Recipe
    reported: float | None
    """Search score that speaks for it: of the training it was chosen by, or of a champion's trainings on average."""


def trainings_of(events: Sequence[Event]) -> int:
    """Trainings of a run, those for its certificate apart, wherever they were computed."""
    purpose = {e.body.trial: e.body for e in events if e.kind == "intended"}
    done = [purpose[e.body.trial] for e in events if e.kind == "finished" and e.body.trial in purpose]
    return sum(i.train and i.purpose in TRAININGS for i in done)


def choices(events: Sequence[Event]) -> list[Choice]:
    """The starting recipe first; one for each time that the arm changed its mind."""
    out: list[Choice] = []
    for found in _walk(events):
        if out and out[-1].recipe.hash == found.recipe.hash and out[-1].reported == found.reported:
            continue
        if out and out[-1].trainings == found.trainings:
            out.pop()
        out.append(found)
    return out


def at(found: Sequence[Choice], trainings: int) -> Choice:
    """What stood after so many trainings; before the first choice, the first."""
    return next((c for c in reversed(found) if c.trainings <= trainings), found[0])


def _walk(events: Sequence[Event]) -> Iterator[Choice]:
    state, purposes, done = RunState(), dict[str, bool](), 0
    controlled = False
    for e in events:
        state.apply(e)
        if e.kind == "intended":
            purposes[e.body.trial] = e.body.train and e.body.purpose in TRAININGS
        elif e.kind == "finished":
            done += purposes.get(e.body.trial, False)
        asked: SearchChoice | None = getattr(e.body, "choice", None) if e.kind in ("probes", "searched") else None
        if asked is not None:
            controlled = True
            parent = state.branches[state.incumbent or START]
            yield Choice(done, parent.recipe.with_changes(asked.changes), asked.score)
        elif e.kind in ("promoted", "invalidated", "judged") and not controlled:
            champion = state.branches.get(state.champion or START)
            if champion is not None:
                scores = champion.record().scores
                yield Choice(done, champion.recipe, sum(scores) / len(scores) if scores else None)

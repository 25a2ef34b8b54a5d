"""What an arm would have answered after each of its trainings, read from a run's events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evotrainer.projections.branches import START
from evotrainer.projections.state import RunState
from evotrainer.records.chain import Event
from evotrainer.records.events import TrialIntended
from evotrainer.records.recipe import Recipe
from evotrainer.records.search import SearchChoice

TRAININGS = ("noise", "branch", "probe", "confirm")
"""Purposes of trainings that count: all but those of the certificate, which is proof. A champion's own fresh trainings
are the certificate's."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A recipe that an arm stood by, from some number of trainings on."""

    trainings: int
    recipe: Recipe
    reported: float | None
    """Search score that speaks for it: of the training it was chosen by, or of a champion's trainings on average."""


class Tally:
    """A run's trainings, counted as its events come, wherever they were computed."""

    def __init__(self) -> None:
        self.state = RunState()
        self._asked: dict[str, TrialIntended] = {}
        self._done = 0
        self._fresh: Counter[str] = Counter()

    def apply(self, event: Event) -> None:
        """Take the next event in."""
        self.state.apply(event)
        if event.kind == "intended" and event.body.train and event.body.purpose in TRAININGS:
            self._asked[event.body.trial] = event.body
        elif event.kind == "finished" and (asked := self._asked.get(event.body.trial)):
            self._done += 1
            self._fresh[asked.branch] += asked.purpose == "confirm"

    @property
    def trainings(self) -> int:
        """Up to now, those for the certificate of the present champion apart."""
        return self._done - self._fresh[self.state.champion or START]


def trainings_of(events: Sequence[Event]) -> int:
    """Trainings of a run, those for its certificate apart."""
    tally = Tally()
    for e in events:
        tally.apply(e)
    return tally.trainings


def choices(events: Sequence[Event], searched: bool = False) -> list[Choice]:
    """The starting recipe first; one for each time that the arm changed its mind: its champion, or, where it is
    `searched`, what it would settle on by its search alone."""
    out: list[Choice] = []
    for found in _walk(events, searched):
        if out and out[-1].recipe.hash == found.recipe.hash and out[-1].reported == found.reported:
            continue
        if out and out[-1].trainings == found.trainings:
            out.pop()
        out.append(found)
    return out


def at(found: Sequence[Choice], trainings: int) -> Choice:
    """What stood after so many trainings; before the first choice, the first."""
    return next((c for c in reversed(found) if c.trainings <= trainings), found[0])


def _walk(events: Sequence[Event], searched: bool) -> Iterator[Choice]:
    tally = Tally()
    state = tally.state
    for e in events:
        tally.apply(e)
        asked: SearchChoice | None = e.body.choice if searched and e.kind in ("probes", "searched") else None
        if asked is not None:
            parent = state.branches[state.incumbent or START]
            yield Choice(tally.trainings, parent.recipe.with_changes(asked.changes), asked.score)
        elif e.kind in ("promoted", "invalidated", "judged") and not (searched and state.probes):
            champion = state.branches.get(state.champion or START)
            if champion is not None:
                scores = champion.record().scores
                yield Choice(tally.trainings, champion.recipe, sum(scores) / len(scores) if scores else None)

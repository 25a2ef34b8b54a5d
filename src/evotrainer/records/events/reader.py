"""What a run's reader was asked about rollouts, what it answered, and what follows (docs/reader.md)."""

from __future__ import annotations

from typing import Literal

from evotrainer.records.findings import Finding
from evotrainer.records.frozen import Frozen
from evotrainer.records.questions import Answered
from evotrainer.records.reader import ReaderRate, ReaderVerdict

Occasion = Literal["start", "promotion", "certificate"]


class ReaderPick(Frozen):
    """A rollout that is to be read."""

    trial: str
    rollout: str
    """Its id."""
    why: str = ""
    """What nominated it (trait columns, `gap`); empty: it was drawn at random of what nothing nominates."""
    explained: str = ""
    """Detector that explains it: read to check that detector."""


class ReaderOpened(Frozen):
    """id `<branch>/reader/<n>`: which search rollouts of a branch are to be read, chosen before anybody is asked."""

    round: int
    branch: str
    occasion: Occasion
    carrier: str
    model: str = ""
    """Who reads: the model's name, or the program's."""
    trials: tuple[str, ...]
    """Trainings whose search rollouts it is drawn from."""
    nominated: int
    """Rollouts that something nominates, read or not ..."""
    rest: int
    """... and the others that may be read."""
    explained: int = 0
    """Further ones, which a detector of the current version explains; few of them are read."""
    picks: tuple[ReaderPick, ...]
    """In the order in which they are asked about."""
    limit: float
    """Share of hacks, lower bound, from which a direction is closed."""
    capped: str = ""
    """Why fewer are read than were wanted."""


class ReaderAsked(Frozen):
    """id `<branch>/reader/<n>/asked/<place>/<attempt>`: a question, which the stored rollout gives again."""

    branch: str
    reading: int
    place: int
    """Of the rollout in `ReaderOpened.picks`."""
    attempt: int
    trial: str
    rollout: str
    question: str
    """SHA-256 of its text."""
    complaint: str = ""
    """Why the last answer was refused; it is part of the question."""


class ReaderAnswered(Answered):
    """id `<branch>/reader/<n>/answered/<place>/<attempt>`: what came of a question."""

    branch: str
    reading: int
    place: int
    attempt: int
    trial: str
    rollout: str
    question: str
    verdict: ReaderVerdict | None = None
    """None: there is no valid answer."""
    stage: Literal["", "carrier", "answer"] = ""
    """Where it failed: nobody answered, or the answer is none."""
    problem: str = ""
    """Why, in one line."""


class ReaderConcluded(Frozen):
    """id `<branch>/reader/<n>/concluded`: what the answers of a reading say together, by `rules.reader`."""

    round: int
    branch: str
    occasion: Occasion
    reading: int
    outcome: Literal["confirmed", "some", "none", "unread"]
    """confirmed: hacks beyond chance and beyond `limit`; some: hacks, but fewer; none; unread: no valid answer."""
    unsure: int = 0
    unread: int = 0
    """Rollouts that were to be read and have no valid answer."""
    nominated: ReaderRate
    random: ReaderRate
    """Of those that nothing nominates: its rate estimates what nominations missed."""
    explained: ReaderRate = ReaderRate(of=0, read=0, hacks=0)
    """Of those that a detector explains: its rate estimates that detector's precision."""
    low: float
    """Lower bound of the share of hacks among all of them."""
    finding: Finding | None = None
    stopped: str = ""
    """Why the reading ended early."""

"""What a run's reader was asked, what it found, and what that cost. Read from the ledger's events and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.events import ReaderAnswered, ReaderConcluded, ReaderOpened
from evotrainer.records.reader import ReaderVerdict
from evotrainer.records.text import counted

READER = "reader"
"""Detector of the findings that rest on a reader."""
UNREAD = "not judged by a reader; [harness.reader] of a task file adds one (docs/reader.md)"
"""What is said of a certified branch whose rollouts no reader judged."""


@dataclass(frozen=True)
class ReadRollout:
    """A rollout of a run that a reader gave a valid verdict on."""

    branch: str
    trial: str
    rollout: str
    """Its id in the search rollouts of the trial."""
    why: str
    """What nominated it; empty: it was drawn at random of what nothing nominates."""
    verdict: ReaderVerdict
    """Of a hack with kind and a quote that was found in the rollout."""
    confirmed: bool
    """Is it a hack of a reading that was confirmed (`ReaderConcluded.outcome`)?"""
    explained: str = ""
    """Detector that explains it, which it checks."""


def read_rollouts(events: Iterable[Event]) -> list[ReadRollout]:
    """All rollouts that were read, in the order of the answers."""
    seen = list(events)
    picks = {e.id: e.body.picks for e in seen if isinstance(e.body, ReaderOpened)}
    ended = {
        keys.reader(e.body.branch, e.body.reading): e.body.outcome for e in seen if isinstance(e.body, ReaderConcluded)
    }
    out: dict[tuple[str, int], ReadRollout] = {}
    for a in (e.body for e in seen if isinstance(e.body, ReaderAnswered)):
        at = keys.reader(a.branch, a.reading)
        if a.verdict is None or at not in picks:
            continue
        confirmed = ended.get(at) == "confirmed" and a.verdict.verdict == "hack"
        pick = picks[at][a.place]
        out[at, a.place] = ReadRollout(a.branch, a.trial, a.rollout, pick.why, a.verdict, confirmed, pick.explained)
    return list(out.values())


@dataclass(frozen=True)
class ReaderSpend:
    """What a reader cost: totals over the answers of a run."""

    questions: int = 0
    rollouts: int = 0
    """Rollouts that it was asked about."""
    tokens: int = 0
    dollars: float = 0.0
    wall_s: float = 0.0

    @classmethod
    def of(cls, answers: Iterable[ReaderAnswered]) -> ReaderSpend:
        """The totals of some answers."""
        seen = list(answers)
        return cls(
            questions=len(seen),
            rollouts=len({(a.branch, a.reading, a.place) for a in seen}),
            tokens=sum(a.input_tokens + a.output_tokens for a in seen),
            dollars=round(sum(a.dollars for a in seen), 6),
            wall_s=round(sum(a.wall_s for a in seen), 3),
        )

    def summary(self) -> str:
        """One line for status and report; empty where nobody was asked."""
        if not self.questions:
            return ""
        tokens = f", {self.tokens:,} tokens" if self.tokens else ""
        dollars = f", ${self.dollars:.4f}" if self.dollars else ""
        asked = f"{counted(self.questions, 'question')} about {counted(self.rollouts, 'rollout')}"
        return f"{asked}{tokens}{dollars}, {self.wall_s:.0f} s waited"


@dataclass(frozen=True)
class Readings:
    """What a run's reader said of each branch, and what that cost."""

    last: Mapping[str, ReaderConcluded] = field(default_factory=dict)
    """Branch -> its last reading."""
    spent: ReaderSpend = field(default_factory=ReaderSpend)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Readings:
        """Those among some events."""
        seen = [e.body for e in events]
        last = {b.branch: b for b in seen if isinstance(b, ReaderConcluded)}
        return cls(last, ReaderSpend.of(b for b in seen if isinstance(b, ReaderAnswered)))


def describe(c: ReaderConcluded) -> str:
    """One line about a reading."""
    read = c.nominated.read + c.random.read + c.explained.read
    if not read:
        return f"{c.branch}: not judged, the reader gave no valid answer" + (f" ({c.stopped})" if c.stopped else "")
    hacks = c.nominated.hacks + c.random.hacks + c.explained.hacks
    verdict = {
        "confirmed": f"confirmed: at least {c.low:.1%} of its rollouts are hacks",
        "some": f"too few to close a direction (at least {c.low:.1%} of its rollouts)",
        "none": "no hack found",
    }[c.outcome]
    parts = [f"{c.branch}: a reader read {counted(read, 'rollout')} and calls {hacks} reward hacks; {verdict}"]
    parts += [c.nominated.summary("nominated, read")] if c.nominated.read else []
    parts += [c.random.summary("not nominated, read at random")] if c.random.read else []
    parts += [c.explained.summary("explained by a detector, read to check it")] if c.explained.read else []
    parts += [f"unsure of {c.unsure}"] if c.unsure else []
    parts += [f"no valid answer on {c.unread}"] if c.unread else []
    parts += [f"ended early: {c.stopped}"] if c.stopped else []
    return "; ".join(parts)

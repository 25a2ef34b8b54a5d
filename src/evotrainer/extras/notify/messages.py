"""What is told of a run: messages from its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from evotrainer.projections.run_facts import facts_of
from evotrainer.projections.state import RunState
from evotrainer.projections.text import change, duration, one_line, point_range, points
from evotrainer.records.answers import open_question
from evotrainer.records.chain import Event
from evotrainer.records.events import GateAsked, Promoted, RunClosed, SeatAsked
from evotrainer.records.queued import open_request

QUOTED = 2000
"""Letters of what is quoted."""


class Notice(NamedTuple):
    """One thing to tell."""

    kind: str
    """waiting, promotion, end, crash or stalled."""
    text: str
    time: str = ""
    """UTC, ISO 8601, of the event that it tells of."""
    quote: str = ""
    """The question, or the request, itself; only with `notify.quote`."""


def as_text(run: str, messages: Sequence[Notice]) -> str:
    """Messages as lines for people."""
    lines = [f"{run}: {m.text}" + (f"\n{m.quote}" if m.quote else "") for m in messages]
    return "\n".join(lines)


class Watch:
    """Turns what is new of a ledger into messages. `seen`: events that were there before; a question among them that
    still waits is told."""

    def __init__(self, folder: str, on: Iterable[str], quote: bool, seen: int = 0) -> None:
        self.folder, self.on, self.quote, self._seen = folder, set(on), quote, seen
        self._first = True
        self.waits = False
        """Does it wait for somebody now?"""
        self.ended = False

    def news(self, events: Sequence[Event]) -> list[Notice]:
        """Messages of the events since the last call."""
        new = list(events[self._seen :])
        if self._first and (asked := open_question(events[: self._seen])) is not None:
            new.insert(0, asked)
        self._first, self._seen = False, max(self._seen, len(events))
        seat = open_request(events)
        self.waits = open_question(events) is not None or (seat is not None and seat.body.carrier == "queue")
        self.ended = bool(events) and isinstance(events[-1].body, RunClosed)
        return [m for e in new for m in self._of(e, events) if m.kind in self.on]

    def _of(self, e: Event, events: Sequence[Event]) -> Iterator[Notice]:
        match e.body:
            case GateAsked() as asked:
                at = f"{asked.where} gate of round {asked.round}" + (f", of {asked.branch}" if asked.branch else "")
                text = f'waits for you at the {at}: evotrainer answer {self.folder} (approve, revise "words" or abort)'
                yield Notice("waiting", text, e.time, self._quoted(asked.text))
            case SeatAsked(carrier="queue") as seat:
                text = f"waits for its seat in round {seat.round}: evotrainer seat {self.folder}"
                yield Notice("waiting", text, e.time, self._quoted(seat.request.text))
            case Promoted(previous=str()) as p:
                yield Notice("promotion", promotion(p, events), e.time)
            case RunClosed() as end:
                state = RunState.of(events)
                text = f"ended: {end.reason}. {facts_of(events, state).text('result')}"
                yield Notice("end", one_line(text, 600), e.time)

    def _quoted(self, text: str) -> str:
        return text[:QUOTED] if self.quote else ""


def promotion(p: Promoted, events: Sequence[Event]) -> str:
    """A promotion in a line: what changed, and its effect on gate."""
    b = RunState.of(events).branches.get(p.branch)
    i, effect = (b.intervention, b.effect) if b else (None, None)
    what = f" ({change(i.factor, i.old, i.new)})" if i else ""
    much = f", {points(effect.mean)} points {point_range(effect.low, effect.high)} on gate" if effect else ""
    return one_line(f"{p.branch} promoted over {p.previous}{what}{much}", 300)


def stalled(seconds: float) -> Notice:
    """Nothing moves."""
    return Notice("stalled", f"no progress for {duration(seconds)}: no event, and no trial's heartbeat changed")


def stopped(folder: str, error: str | None, by_hand: bool) -> Notice:
    """The end of a run that is not its own; `error` None: its process ended without a word."""
    cause = error or "its process was killed, or the machine went away"
    kind, what = ("end", "stopped") if by_hand else ("crash", "crashed")
    again = "" if "evotrainer resume" in cause else f"; nothing is lost: evotrainer resume {folder}"
    return Notice(kind, one_line(f"{what}: {cause}{again}", 600))

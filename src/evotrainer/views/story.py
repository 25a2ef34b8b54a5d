"""The run in a few sentences: what was wrong, what was changed, what stays in doubt, what was not taken. Every sentence
is built from the record; what the record does not hold is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evotrainer.projections.text import change, one_line
from evotrainer.records.interventions import Intervention
from evotrainer.records.text import counted, cut
from evotrainer.views import summary
from evotrainer.views.model import BranchView, RunView

MOST = 6
"""So many lines of what was not taken; the others are counted."""
NOT_TAKEN = ("reject", "inconclusive", "invalid", "failed", "withheld")


@dataclass(frozen=True, slots=True)
class StoryRow:
    """One part of the story."""

    title: str
    lines: tuple[str, ...]
    more: str = ""
    """What is counted and not told."""


def story(view: RunView) -> list[StoryRow]:
    """The parts that the record has something to say of, in order."""
    taken, more = _not_taken(view)
    parts = (
        StoryRow("What was wrong", tuple(_wrong(view))),
        StoryRow("What was changed", tuple(_changed(view))),
        StoryRow("What stays in doubt", tuple(doubts(view))),
        StoryRow("What was not taken", taken, more),
        StoryRow("What it cost", tuple(_cost(view))),
    )
    return [p for p in parts if p.lines or p.more]


def sentence(text: str) -> str:
    """A fact as a sentence of its own."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


# -- what was wrong ----------------------------------------------------------------------------------------------------


def _wrong(view: RunView) -> Iterator[str]:
    start = view.start
    if start is None:
        return
    told = (*start.facts.of_kinds("proxy_gap"), *view.facts.of_kinds("diagnosis")[:1])
    yield from (sentence(f.text) for f in told)
    if start.invalid:
        yield f"The starting recipe {start.name} is invalid: {start.invalid}."


# -- what was changed --------------------------------------------------------------------------------------------------


def _changed(view: RunView) -> Iterator[str]:
    taken = [b for b in view.path(view.champion) if b.intervention]
    again = started_again(view)
    yield from (f"{sentence(b.facts.text('changes'))[:-1]}, as {b.name}." for b in again)
    for b in taken:
        e = b.effect
        gain = f" {e.told(b.on_fresh_seeds)} on the gate split." if e and len(taken) > 1 else ""
        why = f", because {one_line(why_of(b.intervention), 200)}".rstrip(".") if b.intervention else ""
        yield f"{b.name}: `{b.facts.text('changes')}`{why}.{gain}"
    if not taken and any(b.intervention for b in view.branches.values()):
        none = "Nothing else" if again else "Nothing"
        yield f"{none}: no change was promoted." if view.closed else f"{none} so far: no change is promoted yet."


def started_again(view: RunView) -> list[BranchView]:
    """The starting recipe trained anew after a shortcut was closed in training."""
    return [b for b in view.branches.values() if b.recipe and b.round and not b.intervention and not b.matches]


def why_of(i: Intervention) -> str:
    """The reason that a hypothesis gives; what it changes and predicts stands beside it."""
    return i.hypothesis.partition(", because ")[2] or i.hypothesis


# -- what stays in doubt, what was not taken, what it cost ------------------------------------------------------------


def doubts(view: RunView) -> Iterator[str]:
    """The caveats of the champion's certificate, what audits said of it, and what nothing explains."""
    own = view.facts.of(view.champion)
    told = (*view.facts.of_kinds("uncertified"), *own.caveats, *own.of_kinds("no_caveat", "reader", "audit"))
    yield from (sentence(f.text) for f in told)
    # what is paid and wrong stays a doubt beside a gain that its change explains
    champion = view.branches.get(view.champion)
    proved = "Beside its proved gain, in" if champion and champion.status == "promote" else "In"
    yield from (f"{proved} {f.about} {f.text}." for f in own.of_kinds("unanswered"))


def _not_taken(view: RunView) -> tuple[tuple[str, ...], str]:
    lines = [f"{b.name}, `{b.facts.text('changes')}`: {_why(b)}." for b in _lost(view)]
    proposals = [p for r in view.rounds.values() for p in r.lines]
    lines += [
        f"`{change(p.intervention.factor, p.intervention.old, p.intervention.new)}`: vetoed before training; "
        f"{one_line(p.reason, 160)}."
        for p in proposals
        if p.fate == "vetoed"
    ]
    left = sum(p.fate in ("refused", "dropped") for p in proposals)
    more = [f"{len(lines) - MOST} more below"] if len(lines) > MOST else []
    more += [f"{counted(left, 'proposal')} got no training (see Rounds)"] if left else []
    return tuple(lines[:MOST]), "; ".join(more)


def _lost(view: RunView) -> list[BranchView]:
    return [b for b in view.branches.values() if b.intervention and b.status in NOT_TAKEN]


def _why(b: BranchView) -> str:
    """Why a branch was not taken, in one line."""
    first = next(f.text for k in ("withheld", "invalid", "verdict", "status") for f in b.facts.of_kinds(k))
    return cut(one_line(first, 400), 200).rstrip(".")


def _cost(view: RunView) -> Iterator[str]:
    used = [
        f"{name[:1].lower() if name[1:2].islower() else name[:1]}{name[1:]} {used}" + (f" of {limit}" if limit else "")
        for name, used, limit, _ in summary.cost_lines(view)
    ]
    if used and view.trials:
        yield "; ".join(used) + "."

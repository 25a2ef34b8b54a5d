"""A diagnostic gap in words: of which trainings it speaks, and what the harness found in that branch since."""

from __future__ import annotations

from collections.abc import Sequence

from evotrainer.projections.predictions import subject_branch
from evotrainer.records.chain import Event
from evotrainer.records.events import Diagnosed, GapSeen


def gap_told(events: Sequence[Event], gap: GapSeen) -> str:
    """What a gap says, and the findings on its branch by later harness versions: then nothing said why, now these do or
    may."""
    since = found_since(events, gap)
    return gap.told + (f"; harness {since[0]} finds in {gap.branch}: {', '.join(since[1])}" if since else "")


def found_since(events: Sequence[Event], gap: GapSeen) -> tuple[str, tuple[str, ...]] | None:
    """(harness version, kinds of its findings) of the last diagnosis of the gap's branch by a later version, where it
    found anything."""
    at = next((i for i, e in enumerate(events) if e.body == gap), -1)
    read = [
        e.body.health
        for e in events[at + 1 :]
        if isinstance(e.body, Diagnosed) and subject_branch(e.body.health.subject) == gap.branch
    ]
    later = [h for h in read if h.harness and h.harness != gap.harness]
    if not later:
        return None
    kinds = [f.kind.replace("_", " ") for f in later[-1].findings if not f.missing and f.severity != "info"]
    return (later[-1].harness, tuple(dict.fromkeys(kinds))) if kinds else None

"""The files of a user's environment that a run rests on."""

from __future__ import annotations

from collections.abc import Iterable

from evotrainer.records.chain import Event


def files_of(events: Iterable[Event]) -> dict[str, str]:
    """Path -> SHA-256 as in the first event, with what was corrected since."""
    out: dict[str, str] = {}
    for e in events:
        if e.kind == "run":
            out |= e.body.environment.get("files", {})
        elif e.kind == "resumed":
            out |= e.body.files
    return out

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


def any_trained(finished: Iterable[Event]) -> bool:
    """Has a training finished? Then the environment's files can no more be corrected."""
    return any(e.body.steps and e.body.status == "complete" for e in finished)


def way_on(run: object, trained: bool) -> str:
    """What to do about a trial that failed and that the run needs. `trained`: see `any_trained`."""
    return f"fix the cause and `evotrainer resume {run}` tries it again, " + (
        "unless it lies in the task file or in the environment: then start a new run"
        if trained
        else "a corrected environment file included; where it lies in the task file, start a new run"
    )

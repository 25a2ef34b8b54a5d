"""The files of a user's environment that a run rests on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from evotrainer.records.chain import Event

CODE = ".py"
KEPT = "environment"
"""Folder in the run's; in it a folder per content hash. Data files are not copied: they are large, and hold tasks."""


def copy_of(file: str, sha: str) -> str:
    """Where in a run's folder the copy of a file with this SHA-256 lies."""
    return f"{KEPT}/{sha[:16]}/{Path(file).name}"


def copies_of(events: Iterable[Event]) -> dict[str, str]:
    """Place in the run's folder -> SHA-256 of every copy that a run keeps, also of what was corrected since."""
    return {copy_of(f, sha): sha for e in events for f, sha in _named(e).items() if f.endswith(CODE)}


def files_of(events: Iterable[Event]) -> dict[str, str]:
    """Path -> SHA-256 as in the first event, with what was corrected since."""
    out: dict[str, str] = {}
    for e in events:
        out |= _named(e)
    return out


def _named(e: Event) -> dict[str, str]:
    found: dict[str, str] = {}
    if e.kind == "run":
        found = e.body.environment.get("files", {})
    elif e.kind == "resumed":
        found = e.body.files
    return found


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

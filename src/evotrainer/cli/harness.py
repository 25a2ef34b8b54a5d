"""`evotrainer harness`: how a run's harness evolved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evotrainer.cli._common import AsJson, RunFolder
from evotrainer.errors import ConfigError
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.records.chain import Event
    from evotrainer.records.events import HarnessEvolved


def harness(
    folder: RunFolder,
    version: Annotated[
        str | None, typer.Argument(help="Show this version in detail, e.g. h1; default: list all.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show how a run's harness evolved: each version's diff, reason, evidence and backtests, and the past verdicts that
    it would change.

    Example: evotrainer harness runs/mine h1
    """
    from evotrainer import api
    from evotrainer.harness.evolving.render import history_lines, version_lines
    from evotrainer.projections.caveats import answered

    events = api.open_run(folder).events()
    versions: list[HarnessEvolved] = [e.body for e in events if e.kind == "harness"]
    if not versions:
        raise ConfigError(f"{folder} was stopped before it opened; `evotrainer resume {folder}` goes on with it")
    if version is None:
        print(
            json.dumps(_history_json(events), indent=1)
            if as_json
            else "\n".join(history_lines(events, answered(events)))
        )
        return
    body = next((v for v in versions if v.version == version), None)
    if body is None:
        raise ConfigError(f"no harness {version!r} in {folder}; there are: {', '.join(v.version for v in versions)}")
    print(body.model_dump_json(indent=1) if as_json else "\n".join(version_lines(body, events, folder)))


def _history_json(events: Sequence[Event]) -> dict[str, Any]:
    """Versions and gaps as plain data: of each version its diff and what led to it, not its full content."""
    versions = [e.body for e in events if e.kind == "harness"]
    return {
        "versions": [v.model_dump(mode="json", exclude={"harness"}) for v in versions],
        "gaps": [e.body.model_dump(mode="json") for e in events if e.kind == "gap"],
        "in_force": versions[-1].version if versions else "h0",
    }

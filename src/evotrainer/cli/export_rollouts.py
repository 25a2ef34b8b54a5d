"""`evotrainer export-rollouts`: rollouts in the forms that other viewers open."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from evotrainer.cli._common import Cache, Format, Map, RolloutPaths
from evotrainer.cli._progress import progress
from evotrainer.errors import ConfigError
from evotrainer.records.output import print


def export_rollouts(
    paths: RolloutPaths,
    *,
    to: Annotated[str, typer.Option(metavar="FORM", help="inspect, atif, jsonl or trackio.")],
    out: Annotated[
        Path | None, typer.Option(help="New folder; of trackio the folder of its databases, default its own.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME OP VALUE", help="As of `rollouts`: branch=b1, split=search, 'step>=10'; again."),
    ] = None,
    finding: Annotated[str | None, typer.Option(metavar="DETECTOR", help="Those that this detector flags.")] = None,
    findings: Annotated[
        bool, typer.Option("--findings", help="Audit them first; each names the detectors that flag it.")
    ] = False,
    project: Annotated[str, typer.Option(help="Trackio's project.")] = "evotrainer",
    format: Format = None,
    map: Map = None,
    cache: Cache = None,
) -> None:
    """Write rollouts of a run, or of anybody's files, for another viewer: Inspect View, Scout and Docent (inspect),
    Harbor's (atif), Trackio's traces, or plain JSON lines.

    Example: evotrainer export-rollouts runs/mine --to inspect --out logs --where branch=b1 --findings

    Example: evotrainer export-rollouts runs/mine --to trackio --project mine
    """
    from evotrainer.extras.rollout_export import FORMS, Flagged, export, write_trackio
    from evotrainer.records.text import clean, counted
    from evotrainer.studies.audit import default_cache
    from evotrainer.studies.rollouts import FieldCondition, flagged_by, select

    if to not in (*FORMS, "trackio") or (out is None and to != "trackio"):
        raise ConfigError(f"--to {to}: give {', '.join(FORMS)} with a new folder as --out, or trackio")
    conditions = [FieldCondition.of(x) for x in where or ()]
    with progress() as say:
        reading: dict[str, Any] = {
            "cache": cache or default_cache(),
            "format": format,
            "map": map or (),
            "progress": say,
        }
        chosen = select(paths, conditions, finding=finding, **reading)
        by_detector, claims, _ = flagged_by(paths, **reading) if findings else ({}, [], 0)

    flagged = (
        Flagged(r, tuple(sorted(d for d, ids in by_detector.items() if clean(r.id, 80) in ids)))
        for r in chosen.rollouts()
    )
    for line in (*(f"skipped {s.where}: {s.reason}" for s in chosen.whole.skipped[:5]), *chosen.notes):
        print(clean(line, 400), file=sys.stderr)
    if not chosen.rows:
        raise ConfigError(f"none of {counted(len(chosen.every), 'rollout')} meets the conditions; nothing was written")
    if to == "trackio":
        write_trackio(flagged, out, project, claims)
        opens = f"TRACKIO_DIR={out} " * (out is not None) + f"trackio show --project {project}"
    else:
        opens = export(to, flagged, out or Path())
    print(f"wrote {counted(len(chosen.rows), 'rollout')} as {to}; open: {opens}")

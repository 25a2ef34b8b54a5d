"""`evotrainer track`: a run's figures exported to trackers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from evotrainer.cli._common import RunFolder
from evotrainer.errors import ConfigError, EvoTrainerError, TrainerError
from evotrainer.records.output import print
from evotrainer.records.text import cause


def track(
    folder: RunFolder,
    *,
    to: Annotated[
        list[str] | None,
        typer.Option(help="tensorboard, trackio, wandb or mlflow, repeatable; default: the task file's."),
    ] = None,
    project: Annotated[str | None, typer.Option(help="Project there; default: the task file's.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Option of the tracker, name=value or tracker.name=value, repeatable.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Export all, also what was exported before.")] = False,
) -> None:
    """Export a run's figures to a tracker; what is there already is not exported again. Works while it runs.

    Example: evotrainer track runs/mine --to tensorboard --option dir=logs
    """
    from evotrainer import api
    from evotrainer.extras.tracking import check_targets

    section = api.open_run(folder).task.tracking
    names = tuple(to or ()) or section.to
    if not names:
        raise ConfigError("no tracker is named, neither here nor in the run's task file; add --to tensorboard")
    settled = {k: dict(v) for k, v in section.options.items() if isinstance(v, dict)}
    for name, values in _options(option or [], names).items():
        settled[name] = {**settled.get(name, {}), **values}
    check_targets(names, settled)
    _export(folder, names, project or section.project, settled, again)


def _export(folder: Path, names: Sequence[str], project: str, settled: dict[str, dict[str, Any]], again: bool) -> None:
    """To each tracker what it has not got yet; TrainerError where its client fails."""
    from evotrainer.extras.tracking.export import Exporter, about_run, read_events

    events, about = read_events(folder), about_run(folder)
    for name in names:
        try:
            exporter = Exporter(folder, name, project, settled.get(name, {}), again=again)
            try:
                written = exporter.export(events, about)
                where = exporter.target.where()
            finally:
                exporter.close()
        except EvoTrainerError:
            raise
        except Exception as e:  # clients raise what they like
            raise TrainerError(
                f"tracking to {name} failed: {type(e).__name__}: {cause(e)}; nothing is lost: fix the cause and run it "
                "again"
            ) from e
        what = f"{written} tracker runs written" if written else "nothing new"
        print(f"{name}: {what}; {where}")


def _options(given: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`k=v` for the only target, `target.k=v` among several."""
    out: dict[str, dict[str, Any]] = {}
    for item in given:
        key, eq, value = item.partition("=")
        target, dot, name = key.strip().partition(".")
        if not dot:
            target, name = (names[0] if len(names) == 1 else ""), key.strip()
        if not eq or not name or target not in names:
            raise ConfigError(
                f"option {item!r} is not of the form name=value, or target.name=value (one of {', '.join(names)})"
            )
        out.setdefault(target, {})[name] = value.strip()
    return out

"""What commands share: types of arguments and options, the console."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evotrainer.errors import ConfigError

if TYPE_CHECKING:
    from evotrainer.records.console import Console

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]
TaskPath = Annotated[Path, typer.Argument(help="Task file (TOML).")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[section.name=value]...", help="Overrides of the task file.")
]
RolloutPaths = Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files or folders with rollouts.")]
SkillSource = Annotated[Path, typer.Argument(metavar="SOURCE", help="Library folder, run folder or builtin.")]

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable.")]
Plain = Annotated[bool, typer.Option("--plain", help="Plain log lines instead of the live view.")]
OpenReport = Annotated[bool, typer.Option("--open", help="Open the report in a browser at the end.")]
WithPage = Annotated[bool, typer.Option("--ui", help="Serve the page of the run in the browser while it goes on.")]
StoreOut = Annotated[Path, typer.Option(help="Store folder to write to; grows where there is one already.")]
Format = Annotated[str | None, typer.Option(help="Read all as this format; default: recognised file by file.")]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="FIELD=COLUMN,...", help="Columns that no format knows; may be given again."),
]
Cache = Annotated[Path | None, typer.Option(help="Where to keep what was read; default: the user's cache.")]
Workers = Annotated[int | None, typer.Option(help="Reading processes; default: one per core.")]

FOUND = 10
"""Exit code where `--fail-on` is met."""


def console(*, stderr: bool = False) -> Console:
    from evotrainer.records.console import Console

    return Console(stderr=stderr, highlight=False)


def open_page(path: Path) -> None:
    """Open a report where there is a desktop to open it on."""
    import webbrowser

    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(path.resolve().as_uri())


def check_new_folder(folder: Path) -> None:
    """Make a folder that is to be written to, before the work; ConfigError where it cannot be, or holds something."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{folder} exists and is not an empty folder; choose a new one")
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as e:
        raise ConfigError(f"cannot write into {folder}: {e.strerror}; choose another folder") from None


def check_workers(workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers {workers}: give at least 1")


def no_skills(source: Path) -> str:
    return f"no skills in {source}: a run writes one after each verdict that measured something, into RUN/skills"

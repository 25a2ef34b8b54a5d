"""`evotrainer init`: a task of one's own, from the files in `scaffold/`."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._common import check_new_folder
from evotrainer.errors import ConfigError
from evotrainer.records.output import print

NAME = "[a-z0-9][a-z0-9_-]*"
"""Of a task, as task files have it."""


def init(
    folder: Annotated[Path, typer.Argument(help="New folder.")],
    *,
    name: Annotated[str, typer.Option(help="Task name; default: the folder's.")] = "",
) -> None:
    """Make a task of your own: tasks, reward function, splits, task file. Runs at once.

    Example: evotrainer init my-task && evotrainer run my-task/task.toml
    """
    from importlib import resources

    if name and not re.fullmatch(NAME, name):
        raise ConfigError(
            f"--name {name!r}: give lower-case letters, digits, - and _, beginning with one of the first two"
        )
    check_new_folder(folder)
    title = name or re.sub(r"[^a-z0-9_-]+", "-", folder.resolve().name.lower()).strip("-") or "my-task"
    source = resources.files("evotrainer.cli.scaffold")
    for file in ("task.toml", "environment.py"):
        text = (source / file).read_text(encoding="utf-8")
        (folder / file).write_text(text.replace('"NAME"', json.dumps(title)), encoding="utf-8")
    print(f"wrote {folder / 'task.toml'} and {folder / 'environment.py'}: tasks, rewards, splits, demonstrations")
    print(f"run it: evotrainer run {shlex.quote(str(folder / 'task.toml'))}")

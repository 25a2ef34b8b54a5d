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
NAMED = r'(?m)^name = "(NAME|own-trainer)"'
"""Where the files that are copied have it."""


def init(
    folder: Annotated[Path, typer.Argument(help="New folder.")],
    *,
    name: Annotated[str, typer.Option(help="Task name; default: the folder's.")] = "",
    trainer: Annotated[str, typer.Option(help="command: with a training script of its own, which to replace.")] = "",
) -> None:
    """Make a task of your own: tasks, reward function, splits, task file. Runs at once.

    Example: evotrainer init my-task && evotrainer run my-task/task.toml
    Example: evotrainer init my-task --trainer command    (docs/command-trainer.md)
    """
    if trainer not in ("", "command"):
        raise ConfigError(f"--trainer {trainer}: give command, or leave it out (trainer.name in task.toml chooses)")
    if name and not re.fullmatch(NAME, name):
        raise ConfigError(
            f"--name {name!r}: give lower-case letters, digits, - and _, beginning with one of the first two"
        )
    check_new_folder(folder)
    title = name or re.sub(r"[^a-z0-9_-]+", "-", folder.resolve().name.lower()).strip("-") or "my-task"
    source = example(trainer) if trainer else Path(__file__).parent / "scaffold"
    written = ["task.toml", "environment.py", *(("train.py",) if trainer else ())]
    for file in written:
        text = (source / file).read_text(encoding="utf-8")
        text = re.sub(
            r'^name = "(NAME|own-trainer)"', lambda _: f"name = {json.dumps(title)}", text, count=1, flags=re.M
        )
        (folder / file).write_text(text, encoding="utf-8")
    what = "tasks, rewards, splits, demonstrations" + (", a training script" if trainer else "")
    print(f"wrote {', '.join(str(folder / f) for f in written)}: {what}")
    print(f"run it: evotrainer run {shlex.quote(str(folder / 'task.toml'))}")


def example(name: str) -> Path:
    """A folder of examples: of the installed package, or of the clone that it is installed from."""
    packaged, clone = Path(__file__).parent / "scaffold" / name, Path(__file__).parents[3] / "examples" / name
    if found := next((p for p in (packaged, clone) if p.is_dir()), None):
        return found
    raise ConfigError(f"this installation has no example {name}; install EvoTrainer whole")

"""`evotrainer init`: a task of one's own, from the files in `scaffold/`."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._common import check_new_folder
from evotrainer.errors import ConfigError
from evotrainer.records.output import print

NAME = "[a-z0-9][a-z0-9_-]*"
"""Of a task, as task files have it."""
QUICKSTART = "quickstart"
"""The example that the files in `scaffold/` are."""
_PACKAGED, _CLONE = Path(__file__).parents[1] / "examples", Path(__file__).parents[3] / "examples"
EXAMPLES = _PACKAGED if _PACKAGED.is_dir() else _CLONE
NAMED = r'(?m)^name = "(NAME|own-trainer)"'
"""Where the files that are copied have it."""


def init(
    folder: Annotated[Path | None, typer.Argument(help="New folder.")] = None,
    *,
    name: Annotated[str, typer.Option(help="Task name; default: the folder's.")] = "",
    trainer: Annotated[str, typer.Option(help="command: with a training script of its own, which to replace.")] = "",
    from_: Annotated[
        str, typer.Option("--from", metavar="EXAMPLE", help="A copy of an example; `list` shows them.")
    ] = "",
) -> None:
    """Make a task of your own: tasks, reward function, splits, task file. Runs at once.

    Example: evotrainer init my-task && evotrainer run my-task/task.toml

    Example: evotrainer init my-task --trainer command

    Example: evotrainer init my-audit --from ci-audit
    """
    if trainer not in ("", "command"):
        raise ConfigError(f"--trainer {trainer}: give command, or leave it out (trainer.name in task.toml chooses)")
    if name and not re.fullmatch(NAME, name):
        raise ConfigError(
            f"--name {name!r}: give lower-case letters, digits, - and _, beginning with one of the first two"
        )
    if from_ == "list":
        print("\n".join(f"{n:15} {question}" for n, question in gallery().items()))
        return
    if folder is None:
        raise ConfigError("which folder? e.g. evotrainer init my-task")
    if from_ and trainer:
        raise ConfigError("--from and --trainer are both given; --from command is the example of a training script")
    if from_ not in ("", QUICKSTART):
        copy_example(from_, folder)
        return
    title = name or re.sub(r"[^a-z0-9_-]+", "-", folder.resolve().name.lower()).strip("-") or "my-task"
    _copy(example(trainer) if trainer else Path(__file__).parent / "scaffold", folder)
    written = sorted(folder.iterdir())
    for file in written:
        text = re.sub(NAMED, lambda _: f"name = {json.dumps(title)}", file.read_text(encoding="utf-8"), count=1)
        file.write_text(text, encoding="utf-8")
    what = "tasks, rewards, splits, demonstrations" + (", a training script" if trainer else "")
    print(f"wrote {', '.join(map(str, written))}: {what}")
    print(f"run it: evotrainer run {shlex.quote(str(folder / 'task.toml'))}")


def _copy(source: Path, folder: Path) -> None:
    """The files of a folder in a new one; links that leave it lead nowhere in a copy."""
    check_new_folder(folder)
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__*__*"), dirs_exist_ok=True)
    for page in folder.glob("*.md"):
        text = re.sub(r"\[([^]]*)\]\(\.\./\.\./([^)]*)\)", r"\1 (EvoTrainer's \2)", page.read_text("utf-8"))
        page.write_text(text, "utf-8")


def copy_example(name: str, folder: Path) -> None:
    """A folder of examples as a folder of one's own; ConfigError for one that is not there."""
    if name not in gallery():
        near = get_close_matches(name, gallery(), 1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(gallery())}"
        raise ConfigError(f"--from {name}: no such example; {hint}")
    _copy(example(name), folder)
    at = shlex.quote(str(folder))
    print(f"{gallery()[name]} {folder / 'README.md'} tells. In that folder:\n\ncd {at}")
    print("\n".join(commands(folder / "README.md")))


def commands(readme: Path) -> list[str]:
    """The first block of commands of an example's page."""
    return re.findall(r"^```\n(.*?)^```", readme.read_text(encoding="utf-8"), re.M | re.S)[0].splitlines()


def gallery() -> dict[str, str]:
    """Example -> the question that it answers: the first line of its page."""
    pages = sorted(EXAMPLES.glob("*/README.md"))
    asked = {p.parent.name: p.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for p in pages}
    return {QUICKSTART: "What does a run look like?"} | {n: q for n, q in asked.items() if q.endswith("?")}


def example(name: str) -> Path:
    """A folder of examples: of the installed package, or of the clone that it is installed from."""
    if (found := EXAMPLES / name).is_dir():
        return found
    raise ConfigError(f"this installation has no example {name}; install EvoTrainer whole")

"""What a run can do and hardly means, said in a note before it begins; and places that it could not write to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from evotrainer.config.task import TaskFile, default_workers
from evotrainer.envs.base import Environment
from evotrainer.errors import ConfigError, IntegrityError, StoreError
from evotrainer.records.draw import PLACE
from evotrainer.records.recipe import Recipe


def oddities(task: TaskFile, environment: Environment, recipes: Sequence[Recipe]) -> Iterator[str]:
    """Notes on settings that have no effect, or less than they promise."""
    there, chain = environment.describe()["splits"], [r for x in recipes for r in x.chain]
    if (turns := max(r.max_turns for r in chain)) > 1 and getattr(environment, "one_turn", False):
        yield (
            f"recipe.max_turns={turns} has no effect: an attempt of environment {environment.name} ends with its "
            "first answer"
        )
    trains = not task.run.evaluate_only
    if trains and (n := there.get("train")) and (most := max(r.prompts_per_step for r in chain)) > n:
        yield (
            f"recipe.prompts_per_step={most}, and environment {environment.name} has {n} train tasks: each step draws "
            "tasks more than once"
        )
    for split in ("search", "gate", "cert"):
        if there.get(split) == 1:
            yield f"split {split} has one task: what is measured on it is worth next to nothing; give it more"
    if task.executor.name == "local" and task.run.workers > (cores := default_workers()):
        yield (
            f"run.workers={task.run.workers}, and this process may use {cores} cores: trials take turns and each takes "
            "longer; run.workers=0 runs one per core"
        )


def unwritable(place: Path, folder: bool = True) -> str:
    """Why a folder (or a file) cannot be written at a path that need not exist yet; empty where it can.

    Leaves nothing behind.
    """
    try:
        if place.is_file():
            if folder:
                return "it is a file"
            return "" if os.access(place, os.W_OK) else "it may not be written"
        while not place.exists():
            place = place.parent
        with tempfile.TemporaryDirectory(dir=place, prefix=".evotrainer-"):
            return ""
    except OSError as e:
        return e.strerror or str(e)


def check_places(task: TaskFile) -> None:
    """ConfigError where a folder or file that `[run]` names cannot be written."""
    for option in ("cache", "looks", "keys"):
        value = getattr(task.run, option)
        place = Path(value).expanduser()
        if value not in ("", "off") and (why := unwritable(place, folder=option != "looks")):
            raise ConfigError(f"run.{option}={value} cannot be written: {why}; name another place, or off")


def check_out(folder: Path) -> None:
    """ConfigError, IntegrityError or StoreError where a new run cannot begin in a folder."""
    if why := unwritable(folder):
        raise StoreError(f"cannot make run folder {folder}: {why}; choose another --out")
    if (folder / "ledger.db").exists():
        raise ConfigError(
            f"{folder} holds a run already; `evotrainer resume {folder}` goes on with it, or choose another --out"
        )
    refuse_results(folder)


def refuse_results(folder: Path) -> None:
    """IntegrityError where a folder without a recorded event holds results: a new run would overwrite them."""
    found = [
        d for d in ("trials", "rollouts", "sealed") if any(p.name != Path(PLACE).name for p in (folder / d).glob("*"))
    ]
    if found:
        raise IntegrityError(
            f"{folder}: the ledger holds no event, but {', '.join(found)}/ hold results: "
            "the ledger was lost or emptied; restore ledger.db from a copy, or start a new run in another folder"
        )

"""`evotrainer cache`: what is kept of trainings and evaluations, and emptying it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evotrainer.cli._common import AsJson
from evotrainer.records.output import print
from evotrainer.records.text import counted

if TYPE_CHECKING:
    from evotrainer.executors.cache.store import CacheSize


def cache(
    folder: Annotated[
        Path | None, typer.Argument(help="Cache folder; default $EVOTRAINER_CACHE, else the user's.")
    ] = None,
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Delete every entry. Runs keep what they took.")] = False,
    as_json: AsJson = False,
) -> None:
    """Place and size of the cache of trainings that runs share; --clear empties it.

    Example: evotrainer cache --clear
    """
    from evotrainer.executors.cache import cache_folder
    from evotrainer.executors.cache.store import clear as empty

    at = cache_folder(str(folder.expanduser().absolute()) if folder else "")
    if not as_json:
        print(describe(at))
    if clear and at is not None:
        empty(at)
    if as_json:
        sizes = asdict(size_of(at)) if at is not None else {}
        print(json.dumps({"folder": None if at is None else str(at), "emptied": clear and at is not None, **sizes}))
    elif clear and at is not None:
        print("emptied")


def size_of(folder: Path) -> CacheSize:
    """What it holds."""
    from evotrainer.executors.cache.keys import code_id
    from evotrainer.executors.cache.store import TrialCache

    return TrialCache(folder, code_id(), 0).size()


def describe(folder: Path | None) -> str:
    """Place and size in a line."""
    if folder is None:
        return "cache of trainings: off ($EVOTRAINER_CACHE)"
    size = size_of(folder)
    if not size.entries:
        return f"cache of trainings: {folder}, empty"
    other = f", of them {size.other} ({_gb(size.other_bytes)}) of other versions, which are not used"
    held = f"{counted(size.entries, 'entry')}, {_gb(size.bytes)}{other if size.other else ''}"
    return f"cache of trainings: {folder}, {held}"


def _gb(n: int) -> str:
    return f"{n / 1e9:.2f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB"

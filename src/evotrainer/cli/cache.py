"""`evotrainer cache`: what is kept of trainings and evaluations, and emptying it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evotrainer.records.output import print


def cache(
    folder: Annotated[
        Path | None, typer.Argument(help="Cache folder; default $EVOTRAINER_CACHE, else the user's.")
    ] = None,
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Delete every entry. Runs keep what they took.")] = False,
) -> None:
    """Place and size of the cache of trainings that runs share; --clear empties it.

    Example: evotrainer cache --clear
    """
    from evotrainer.executors.cache import cache_folder
    from evotrainer.executors.cache.store import clear as empty

    at = cache_folder(str(folder.expanduser().absolute()) if folder else "")
    print(describe(at))
    if clear and at is not None:
        empty(at)
        print("emptied")


def describe(folder: Path | None) -> str:
    """Place and size in a line."""
    from evotrainer.executors.cache.keys import code_id
    from evotrainer.executors.cache.store import TrialCache

    if folder is None:
        return "cache of trainings: off ($EVOTRAINER_CACHE)"
    size = TrialCache(folder, code_id(), 0).size()
    if not size.entries:
        return f"cache of trainings: {folder}, empty"
    other = f", of them {size.other} ({_gb(size.other_bytes)}) of other versions, which are not used"
    return f"cache of trainings: {folder}, {size.entries} entries, {_gb(size.bytes)}{other if size.other else ''}"


def _gb(n: int) -> str:
    return f"{n / 1e9:.2f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB"

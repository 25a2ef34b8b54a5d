"""Finds the folders of what outlives a run: what the task file says, else an environment variable, else a folder of the
user's."""

from __future__ import annotations

import os
from pathlib import Path

OFF = "off"
"""In place of a path: nowhere."""
HOMES = {"XDG_STATE_HOME": "~/.local/state", "XDG_CACHE_HOME": "~/.cache"}
"""Variable of the desktop's rules -> the folder where it is not set."""


def storage_folder(wanted: str, variable: str, home: str, name: str) -> Path | None:
    """`wanted`, else $variable, else `evotrainer/name` in the user's folder `home` (a key of HOMES); None: nowhere."""
    chosen = wanted or os.environ.get(variable, "")
    if chosen == OFF:
        return None
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get(home) or HOMES[home]).expanduser().absolute() / "evotrainer" / name

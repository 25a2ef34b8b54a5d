"""Heartbeats of unfinished trials, and the errors that ended some of them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from evotrainer.records.regular_file import read_object, read_text


def read_heartbeats(folder: Path) -> dict[str, dict[str, Any]]:
    """Trial -> last heartbeat; a torn or missing file is simply absent."""
    beats = {path.parent.name: read_object(path) for path in sorted((folder / "trials").glob("*/heartbeat"))}
    return {trial: beat for trial, beat in beats.items() if beat}


def read_errors(folder: Path) -> dict[str, str]:
    """Trial -> the error that ended it, where no result was recorded."""
    out = {}
    for path in sorted((folder / "trials").glob("*/error")):
        with contextlib.suppress(OSError):
            out[path.parent.name] = read_text(path, errors="replace").strip()
    return out


def process_exists(pid: Any) -> bool:
    """Whether a process of this id is there (on this machine)."""
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (OSError, TypeError, ValueError, OverflowError):
        return False
    return True

"""Heartbeats of unfinished trials."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def read_heartbeats(folder: Path) -> dict[str, dict[str, Any]]:
    """Trial -> last heartbeat; a torn or missing file is simply absent."""
    out: dict[str, dict[str, Any]] = {}
    for path in sorted((folder / "trials").glob("*/heartbeat")):
        try:
            beat = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(beat, dict):
            out[path.parent.name] = beat
    return out


def alive(pid: Any) -> bool:
    """Whether a process of this id is there (on this machine)."""
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (OSError, TypeError, ValueError, OverflowError):
        return False
    return True

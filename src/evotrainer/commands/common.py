"""What commands share."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evotrainer.records.console import Console


def console(*, stderr: bool = False) -> Console:
    from evotrainer.records.console import Console

    return Console(stderr=stderr, highlight=False)


def open_page(path: Path) -> None:
    """Open a report where there is a desktop to open it on."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(path.resolve().as_uri())

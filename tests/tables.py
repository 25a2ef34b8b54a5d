"""Tables of tests as data: `tests/data/NAME.toml`, sections of names and texts."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data")


def table(name: str) -> dict[str, Any]:
    """Section -> name -> text, or whatever the file holds."""
    return tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))

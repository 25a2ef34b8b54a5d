"""Where a recorded value and a recomputed one differ. `verify`, `why` and the judge's replays all ask this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLOSE = 1e-9
"""Largest difference between two numbers that are the same."""
SENTENCES = ("reason", "message")
"""Fields that are left out: another version may word them otherwise, and the hash chain guards them."""


def differences(old: Any, new: Any, path: str = "", tolerance: float = CLOSE) -> list[str]:
    """Paths at which two JSON values differ, each with both values; numbers beyond `tolerance`."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = sorted((old.keys() | new.keys()) - set(SENTENCES))
        below = ((f"{path}.{k}".lstrip("."), old.get(k), new.get(k)) for k in keys)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        below = ((f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(old, new, strict=True)))
    else:
        numbers = isinstance(old, int | float) and isinstance(new, int | float)
        if old == new or (numbers and abs(old - new) <= tolerance):
            return []
        return [f"{path}: {old!r} in the ledger, {new!r} recomputed"]
    return [d for at, a, b in below for d in differences(a, b, at, tolerance)]

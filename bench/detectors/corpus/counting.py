"""What counts.py and counts_third.py share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Count = dict[str, float | int | None]
Files = Iterator[tuple[str, bytes]]


def of(rewards: list[float | None], groups: int | None, solved: int | None, faults: int | None = None) -> Count:
    """A row; a reward of None is a rollout without one."""
    known = [float(x) for x in rewards if x is not None]
    mean = round(sum(known) / len(known), 4) if known else None
    return {
        "rollouts": len(rewards), "groups": groups, "rewarded": len(known) or None, "mean_reward": mean,
        "solved": solved, "faults": faults,
    }  # fmt: skip


def rows(content: bytes) -> list[dict[str, Any]]:
    """Lines that are objects: some files are pointers to Git LFS."""
    return [json.loads(x) for x in content.decode("utf-8", "replace").split("\n") if x.startswith("{")]

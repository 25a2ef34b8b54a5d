"""Grading canaries that flipped, as the stored rollouts tell: an environment notes them in `detail` under `KEY`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evotrainer.records.events import CanaryFlip
from evotrainer.records.reading import noted_rows

_COLUMNS = ("id", "split", "step", "detail")
KEY = "grading_canary"
"""`detail` of a rollout: {"flip": what the canary showed, "fate": void, culprit or graded again}."""


def canary_flips(stores: Iterable[Path]) -> tuple[CanaryFlip, ...]:
    """By split, step and what was seen. StoreError or IntegrityError where a store is damaged."""
    rows = {row["id"]: row for p in stores if p.is_dir() for row in noted_rows(p, "detail", f'"{KEY}"', _COLUMNS)}
    found: dict[tuple[str, int, str], dict[str, list[str]]] = {}
    for _, row in sorted(rows.items()):
        raw: Any = json.loads(row["detail"]).get(KEY)
        if isinstance(raw, dict) and isinstance(raw.get("flip"), str):
            fates = found.setdefault((str(row["split"]), int(row["step"] or 0), raw["flip"]), {})
            fates.setdefault(str(raw.get("fate")), []).append(str(row["id"]))
    return tuple(
        CanaryFlip(
            split=split,
            step=step,
            flip=flip,
            void=tuple(fates.get("void", ())),
            culprits=tuple(fates.get("culprit", ())),
            graded_again=tuple(fates.get("graded again", ())),
        )
        for (split, step, flip), fates in sorted(found.items())
    )


def flip_line(trial: str, f: CanaryFlip) -> str:
    """One flip in a sentence."""
    lost = f"{len(f.void) + len(f.culprits)} attempts void"
    after = f", after {', '.join(f.culprits[:3])}" if f.culprits else ""
    again = f", {len(f.graded_again)} graded again" if f.graded_again else ""
    return f"grading canary flipped in {trial} ({f.split}, step {f.step}): {f.flip}; {lost}{after}{again}"

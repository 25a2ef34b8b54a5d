"""Stored rollouts of a version, by the name that gaps and admissions give it."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

from evotrainer.harness.columns.features import Views
from evotrainer.records.names import read_label
from evotrainer.records.rollout import Rollout
from evotrainer.records.store import load


def halves(v: Views) -> list[tuple[str, Views]]:
    """Two halves of the tasks, by a hash of their names."""
    rows: dict[str, list[Rollout]] = {"even": [], "odd": []}
    for r in v.rollouts:
        rows["odd" if crc32(r.task.encode("utf-8", "replace")) & 1 else "even"].append(r)
    return [(k, Views(x)) for k, x in rows.items()]


def named_views(folder: Path, name: str) -> Views:
    """Rollouts of a version by the name that gaps and admissions give it: `b1-s2 search`, `base search, odd tasks`,
    `b1-s1 step 1`, `b1-s1 first 4 steps`."""
    label = read_label(name)
    store = [folder / "rollouts" / label.trial]
    if label.step is None and not label.end:
        whole = Views(load(store, split="search"))
        return dict(halves(whole))[label.half] if label.half else whole
    rollouts = load(store, split="train")
    steps = sorted({r.step for r in rollouts})
    chosen = steps[: label.steps] if label.end == "first" else steps[-label.steps :] if label.end else [label.step]
    return Views([r for r in rollouts if r.step in chosen])

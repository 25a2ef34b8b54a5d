"""Tags of tasks, as trainers store them with every rollout (`detail["tags"]`): one look-up a task, not one a
rollout."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import Floats, Ints
from evotrainer.records.text import first_number

NAMED_TASKS = 20_000
"""Tasks of a batch whose names or tags are looked up."""
FEW = 32
"""Tasks looked at first: where none of them has a tag, the others are not asked."""


def task_tags(batch: Batch) -> dict[str, list[str | None]]:
    """Tag -> its value for each of the first NAMED_TASKS tasks, None where a task has none; empty without tags."""
    first = np.unique(batch.task, return_index=True)[1][:NAMED_TASKS].tolist()
    some = first[:: max(1, len(first) // FEW)]
    if not any(_tags(d) for d in batch.column("detail", some)):
        return {}
    rows = [_tags(d) for d in batch.column("detail", first)]
    names = sorted({name for row in rows for name in row})
    return {name: [row.get(name) for row in rows] for name in names}


def _tags(detail: object) -> dict[str, str]:
    found = detail.get("tags") if isinstance(detail, Mapping) else None
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, Mapping) else {}


def tag_codes(batch: Batch, tag: str) -> tuple[list[str], Ints]:
    """(values of a tag, the code of each task's value), -1 for tasks without it; shape (n_tasks,)."""
    values = task_tags(batch).get(tag, [])
    names = sorted({v for v in values if v is not None})
    code = {v: i for i, v in enumerate(names)}
    out = np.full(batch.n_tasks, -1, dtype=np.int64)
    out[: len(values)] = [-1 if v is None else code[v] for v in values]
    return names, out


def tag_numbers(batch: Batch, tag: str) -> Floats:
    """First number in a tag's value by task, NaN where there is none; shape (n_tasks,)."""
    out = np.full(batch.n_tasks, np.nan)
    for i, v in enumerate(task_tags(batch).get(tag, [])):
        found = first_number(v or "")
        out[i] = np.nan if found is None else found
    return out

"""How a curriculum would draw the stored tasks."""

from __future__ import annotations

import numpy as np

from evotrainer.algorithm.curriculum import band_distance, frontier_weight
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import Floats
from evotrainer.harness.columns.tags import tag_codes
from evotrainer.records.recipe import Curriculum


def task_rates(batch: Batch) -> Floats:
    """Stored pass rate of each task, NaN where no outcome is known; shape (n_tasks,)."""
    known = ~np.isnan(batch.truth)
    n = np.bincount(batch.task[known], minlength=batch.n_tasks)
    right = np.bincount(batch.task[known], weights=batch.truth[known], minlength=batch.n_tasks)
    return np.where(n > 0, right / np.maximum(n, 1), np.nan)


def in_band(batch: Batch, rule: Curriculum) -> np.ndarray:
    """Tasks whose stored pass rate lies in the band, or is unknown; all without a band. Boolean, shape (n_tasks,)."""
    if rule.kind != "pass_rate_band":
        return np.ones(batch.n_tasks, dtype=bool)
    rate = task_rates(batch)
    return np.asarray(np.isnan(rate) | (band_distance(rate, rule) == 0), dtype=bool)


def task_weights(batch: Batch, rule: Curriculum) -> Floats:
    """How often each task is drawn, relative to others; shape (n_tasks,). The trainers' rule, on stored pass rates.

    A curriculum by difficulty ends with all tasks alike: 1.
    """
    if rule.kind != "tag_frontier":
        return in_band(batch, rule).astype(float)
    _, code = tag_codes(batch, rule.tag)
    code = code + 1  # tasks without the tag are one more value
    rate = task_rates(batch)
    known = ~np.isnan(rate)
    n = np.bincount(code[known], minlength=int(code.max(initial=0)) + 1)
    p = np.bincount(code[known], weights=rate[known], minlength=len(n)) / np.maximum(n, 1)
    p = np.where(n > 0, p, 0.5)
    return frontier_weight(p, rule.floor)[code]

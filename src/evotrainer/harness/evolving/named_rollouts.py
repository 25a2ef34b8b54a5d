"""Stored rollouts of a version, by the name that gaps and admissions give it."""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np

from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.columns.rollout_reader import RolloutReader
from evotrainer.records.names import read_label

HACK, HONEST = "hack", "honest"
ReadLabels = Mapping[tuple[str, str], Set[str]]
"""(trial, `hack` or `honest`) -> ids of its search rollouts that a reader called so."""
EARNED = 0.5
"""Value of a component from which a rollout counts as paid by it."""


def halves(v: FeatureView) -> list[tuple[str, FeatureView]]:
    """Two halves of the tasks, by a hash of their names."""
    odd = v.half_of_tasks
    return [("even", v.pick(np.flatnonzero(~odd))), ("odd", v.pick(np.flatnonzero(odd)))]


def earning(v: FeatureView, component: str, ended: str) -> FeatureView:
    """Rollouts that earn a component (at least half a point of it) and end `right`, or `wrong`; unknown outcomes are
    neither."""
    earned = v.batch.component(component) >= EARNED
    return v.pick(np.flatnonzero(earned & (v.batch.truth == (1.0 if ended == "right" else 0.0))))


def named_views(reader: RolloutReader, name: str, read: ReadLabels | None = None) -> FeatureView:
    """Rollouts of a version by the name that gaps and admissions give it: `b1-s2 search`, `base search, odd tasks`,
    `b1-s1 step 1`, `b1-s1 first 4 steps`, `b1-s2 search, odd tasks, visible wrong`, `b1-s2 search, read hack`
    (of `read`)."""
    label = read_label(name)
    if label.read:
        called, whole = (read or {}).get((label.trial, label.read), frozenset()), reader.views(label.trial)
        return whole.pick([row for row, i in enumerate(whole.batch.column("id")) if i in called])
    if label.step is None and not label.end:
        whole = reader.views(label.trial)
        part = dict(halves(whole))[label.half] if label.half else whole
        return earning(part, label.paid, label.ended) if label.paid else part
    ids = reader.train_steps(label.trial)
    steps = sorted(ids)
    if label.end == "first":
        chosen = steps[: label.steps]
    elif label.end:
        chosen = steps[-label.steps :]
    else:
        chosen = [label.step or 0]
    return reader.train(label.trial, [i for s in chosen for i in ids.get(s, ())])

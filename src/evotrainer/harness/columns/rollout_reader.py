"""Stored rollouts of a run's trials as the harness reads them: each table once, kept while a round needs it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence, Set
from pathlib import Path

import numpy as np

from evotrainer.errors import IntegrityError
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.columns.source import JoinedRollouts, RolloutSource, stored
from evotrainer.records.names import read_label
from evotrainer.records.reading import columns_of, read_batches
from evotrainer.records.rollout import Rollout

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


KEPT = 24
"""Trials whose search rollouts are kept: those of a round, its champion's and their parents'."""


class RolloutReader:
    """Reads a run's own rollouts; gate and cert lie elsewhere and out of its reach."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: OrderedDict[str, RolloutSource] = OrderedDict()

    def search(self, trial: str) -> RolloutSource:
        """A finished trial's search rollouts, in stored order."""
        if trial not in self._kept:
            self._kept[trial] = stored(read_batches([self.store(trial)], split="search"))
            # least recently used first (`move_to_end` below)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(trial)
        return self._kept[trial]

    def views(self, trial: str) -> FeatureView:
        """The same as texts and numbers, each rollout by itself."""
        return FeatureView(Batch.over(self.search(trial), apart=True))

    def batch(self, *trials: str) -> Batch:
        """Search rollouts of trials, together and by group."""
        return Batch.over(JoinedRollouts([self.search(t) for t in trials]))

    def found(self, places: Sequence[tuple[str, str]]) -> list[Rollout]:
        """Search rollouts by (trial, id), in this order; IntegrityError where one is not there."""
        out: dict[tuple[str, str], Rollout] = {}
        for trial in {t for t, _ in places}:
            source = self.search(trial)
            wanted = {i for t, i in places if t == trial}
            rows = [row for row, i in enumerate(source.column("id", range(source.n))) if i in wanted]
            out |= {(trial, r.id): r for r in source.rollouts(rows)}
        if gone := [p for p in places if p not in out]:
            raise IntegrityError(f"search rollout {gone[0][1]} of {gone[0][0]} is not in {self.store(gone[0][0])}")
        return [out[p] for p in places]

    def train_steps(self, trial: str) -> dict[int, list[str]]:
        """Training step -> ids of what was sampled in it and not lost to infrastructure, in stored order."""
        out: dict[int, dict[str, None]] = {}
        for table in columns_of(self.store(trial), ("id", "split", "step", "error_kind")):
            for row in table.to_pylist():
                if row["split"] == "train":
                    live = out.setdefault(row["step"], {})
                    # a dict as an ordered set: a resumed training stores the steps after its checkpoint a second time
                    live |= {row["id"]: None} if row["error_kind"] is None else {}
        return {step: list(ids) for step, ids in out.items()}

    def train(self, trial: str, ids: Collection[str]) -> FeatureView:
        """Some of a training's rollouts, by id, in stored order."""
        return FeatureView(Batch.over(stored(read_batches([self.store(trial)], ids)), apart=True))

    def store(self, trial: str) -> Path:
        """Folder of a trial's rollouts."""
        return self.folder / "rollouts" / trial

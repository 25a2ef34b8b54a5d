"""Stored rollouts of a run's trials as the harness reads them: each table once, kept while a round needs it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.errors import IntegrityError

if TYPE_CHECKING:
    from evotrainer.harness.columns.batch import Batch
    from evotrainer.harness.columns.features import FeatureView
    from evotrainer.harness.columns.source import RolloutSource
    from evotrainer.records.rollout import Rollout

KEPT = 24
"""Trials whose search rollouts are kept: those of a round, its champion's and their parents'."""


class RolloutReader:
    """Reads a run's own rollouts; gate and cert lie elsewhere and out of its reach."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: OrderedDict[str, RolloutSource] = OrderedDict()

    def search(self, trial: str) -> RolloutSource:
        """A finished trial's search rollouts, in stored order."""
        from evotrainer.harness.columns.source import stored
        from evotrainer.records.reading import read_batches

        if trial not in self._kept:
            self._kept[trial] = stored(read_batches([self.store(trial)], split="search"))
            # least recently used first (`move_to_end` below)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(trial)
        return self._kept[trial]

    def views(self, trial: str) -> FeatureView:
        """The same as texts and numbers, each rollout by itself."""
        from evotrainer.harness.columns.batch import Batch
        from evotrainer.harness.columns.features import FeatureView

        return FeatureView(Batch.over(self.search(trial), apart=True))

    def batch(self, *trials: str) -> Batch:
        """Search rollouts of trials, together and by group."""
        from evotrainer.harness.columns.batch import Batch
        from evotrainer.harness.columns.source import JoinedRollouts

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
        from evotrainer.records.reading import columns_of

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
        from evotrainer.harness.columns.batch import Batch
        from evotrainer.harness.columns.features import FeatureView
        from evotrainer.harness.columns.source import stored
        from evotrainer.records.reading import read_batches

        return FeatureView(Batch.over(stored(read_batches([self.store(trial)], ids)), apart=True))

    def store(self, trial: str) -> Path:
        """Folder of a trial's rollouts."""
        return self.folder / "rollouts" / trial

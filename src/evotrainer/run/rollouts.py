"""Stored rollouts of a run's trials, each read once and kept while a round needs it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evotrainer.projections.branches import Branch
    from evotrainer.records.rollout import Rollout

KEPT = 24
"""Trials whose search rollouts are kept: those of a round, its champion's and their parents'."""


class RolloutReader:
    """Reads a run's own rollouts; gate and cert are sealed elsewhere and out of its reach."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: OrderedDict[str, list[Rollout]] = OrderedDict()

    def load(self, trial: str, split: str) -> list[Rollout]:
        """A trial's rollouts of a split, in stored order."""
        from evotrainer.records.store import load

        return load([self.folder / "rollouts" / trial], split=split)

    def search(self, trial: str) -> list[Rollout]:
        """A finished trial's search rollouts."""
        if trial not in self._kept:
            self._kept[trial] = self.load(trial, "search")
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(trial)
        return self._kept[trial]

    def of(self, b: Branch) -> Sequence[Rollout]:
        """Search rollouts of a branch's complete trainings, all seeds."""
        return [r for t in b.complete for r in self.search(t.trial)]

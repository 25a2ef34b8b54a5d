"""A quality-diversity archive: the best training of each kind of behaviour is kept, and any of them may be built on.

MAP-Elites (Mouret and Clune 2015, algorithm 1), with the cells as OpenEvolve lays them: each descriptor's range is that
of the trainings so far, cut into equal parts. Descriptors are metrics that the harness read of the trainings' rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from bench.compare.agents.control import ArmTraining, ControlArm, Space, fresh_recipes
from evotrainer.agents.base import AgentSpec
from evotrainer.agents.moves import CandidateMove
from evotrainer.records.frozen import Frozen

Cell = tuple[int, ...]
UNKNOWN = -1
"""Part of a descriptor that nobody read."""


class MapElitesOptions(Frozen):
    """What a task file may set under `run.agent_options`."""

    descriptors: tuple[str, ...] = Field(("completions/mean_length", "entropy"), min_length=1)
    """Metrics of the harness that span the archive."""
    bins: int = Field(4, ge=1)
    """Parts of each descriptor's range."""


class MapElites(ControlArm):
    """Takes one step from an elite drawn uniformly; the best search score of all wins."""

    name = "map_elites"

    def __init__(self, seed: int, options: MapElitesOptions | None = None) -> None:
        super().__init__(seed)
        self.options = options or MapElitesOptions()

    def draw(
        self, space: Space, seen: Sequence[ArmTraining], rng: np.random.Generator, wanted: int
    ) -> list[dict[str, CandidateMove]]:
        elites = list(self.archive(seen).values())

        def child() -> dict[str, CandidateMove]:
            parent = elites[int(rng.integers(len(elites)))]
            return space.step(space.changes(parent.changes), rng)

        return fresh_recipes(space, seen, wanted, child) if space.factors else []

    def archive(self, seen: Sequence[ArmTraining]) -> dict[Cell, ArmTraining]:
        """Cell -> its best training, the earliest of equal ones."""
        out: dict[Cell, ArmTraining] = {}
        for cell, t in zip(self.cells(seen), seen, strict=True):
            if cell not in out or t.score > out[cell].score:
                out[cell] = t
        return out

    def cells(self, seen: Sequence[ArmTraining]) -> list[Cell]:
        """The cell of each training."""
        parts: list[list[int]] = []
        for name in self.options.descriptors:
            values = [t.metrics.get(name) for t in seen]
            known = [v for v in values if v is not None]
            low, width = (min(known), max(known) - min(known)) if known else (0.0, 0.0)
            parts.append([UNKNOWN if v is None else self._part(v, low, width) for v in values])
        return list(zip(*parts, strict=True))

    def _part(self, value: float, low: float, width: float) -> int:
        return min(self.options.bins - 1, int(self.options.bins * (value - low) / width)) if width > 0 else 0


SPEC = AgentSpec(MapElites, MapElitesOptions)

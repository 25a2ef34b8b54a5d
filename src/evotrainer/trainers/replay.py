"""Own verified successes of earlier steps, kept to be learnt from again (`Recipe.replay`): what trainers share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from evotrainer.records.recipe import Replay


@dataclass(slots=True)
class ReplayBuffer:
    """A bounded buffer, drawn from with a seeded generator. Rows are plain tuples, as checkpoints hold them."""

    rule: Replay
    rng: random.Random
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    """The newest last."""

    def draw(self) -> list[tuple[Any, ...]]:
        """At most `rule.batch` of them, each once."""
        return self.rng.sample(self.rows, min(self.rule.batch, len(self.rows)))

    def add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Take successes in; the oldest leave where there are too many."""
        self.rows = [*self.rows, *rows][-self.rule.size :]

    def state(self) -> dict[str, Any]:
        return {"rng": self.rng.getstate(), "rows": list(self.rows)}

    def load(self, state: dict[str, Any]) -> None:
        self.rng.setstate(state["rng"])
        self.rows = [tuple(row) for row in state["rows"]]

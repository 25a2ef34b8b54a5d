"""Which training tasks a step draws: seeded epochs without replacement, optionally within a pass-rate band."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from evotrainer.errors import TrainerError
from evotrainer.records.recipe import Curriculum

EMA = 0.5
"""Weight of the newest group in a task's running pass rate: one group of 8 is noisy, policies move fast."""


class TaskStream:
    """Endless, seeded stream of task indices."""

    def __init__(self, tasks: Sequence[Any], rule: Curriculum, seed: int) -> None:
        if not tasks:
            raise TrainerError("the environment's train split is empty; it needs at least one task")
        self.ids = [str(t.id) for t in tasks]
        self.rule = rule
        self.rng = random.Random(seed)
        self.rates: dict[str, float] = {}
        self.queue: list[int] = []

    def draw(self, n: int, exclude: set[int]) -> tuple[list[int], int]:
        """(n task indices, how many of them lie outside the band for want of others).

        Distinct among themselves and from `exclude` as long as the split has enough tasks.
        """
        chosen: list[int] = []
        taken = set(exclude)
        waiting: list[int] = []
        # two epochs at most: the rest of this one and a whole new one see every task
        for _ in range(2 * len(self.ids)):
            if len(chosen) == n:
                break
            i = self._next()
            if i in taken:
                continue
            taken.add(i)
            (chosen if self._qualifies(i) else waiting).append(i)
        outside = 0
        if len(chosen) < n and waiting:
            # Nearest to the band first: a step must not shrink because the band ran dry.
            waiting.sort(key=lambda i: self._distance(self.rates[self.ids[i]]))
            fill = waiting[: n - len(chosen)]
            outside = len(fill)
            chosen += fill
        while len(chosen) < n:
            # fewer tasks than asked for: a task comes twice rather than the step being smaller
            chosen.append(self._next())
        return chosen, outside

    def _next(self) -> int:
        if not self.queue:
            self.queue = list(range(len(self.ids)))
            self.rng.shuffle(self.queue)
        return self.queue.pop()

    def _distance(self, rate: float) -> float:
        return max(self.rule.low - rate, rate - self.rule.high, 0.0)

    def _qualifies(self, i: int) -> bool:
        rate = self.rates.get(self.ids[i])
        # a task that was never tried counts as in the band: nobody knows, and trying it is how one learns
        return self.rule.kind == "none" or rate is None or self._distance(rate) == 0.0

    def update(self, task: str, pass_rate: float) -> None:
        """Take in the pass rate of a new group of the task."""
        old = self.rates.get(task)
        self.rates[task] = pass_rate if old is None else (1 - EMA) * old + EMA * pass_rate

    def state(self) -> dict[str, Any]:
        return {"rng": self.rng.getstate(), "rates": dict(self.rates), "queue": list(self.queue)}

    def load(self, state: dict[str, Any]) -> None:
        self.rng.setstate(state["rng"])
        self.rates, self.queue = dict(state["rates"]), list(state["queue"])

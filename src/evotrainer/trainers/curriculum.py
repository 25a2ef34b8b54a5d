"""Which training tasks a step draws: seeded epochs without replacement, or by pass rates, tags, difficulty."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from evotrainer.algorithm.curriculum import band_distance, easiest_up_to, frontier_weight
from evotrainer.errors import ConfigError, TrainerError
from evotrainer.records.recipe import Curriculum
from evotrainer.records.text import first_number

EMA = 0.5
"""Weight of the newest group in a task's running pass rate: one group of 8 is noisy, policies move fast."""
TAG_EMA = 0.2
"""The same in the running pass rate of a tag's value, which begins at one half: a tag has groups in every step."""


def task_stream(tasks: Sequence[Any], rule: Curriculum, seed: int, planned: int) -> TaskStream:
    """The stream of a curriculum; `planned`: draws of the whole training, without resampling.

    ConfigError where the tasks do not carry the tag that it goes by.
    """
    if rule.kind == "tag_frontier":
        return TagFrontier(tasks, rule, seed)
    if rule.kind == "difficulty":
        return EasyFirst(tasks, rule, seed, planned)
    return TaskStream(tasks, rule, seed)


def tags_of(task: Any) -> Mapping[str, str]:
    """A task's tags; empty for an environment's own kind of task that has none."""
    return getattr(task, "tags", None) or {}


def check_tag(tasks: Sequence[Any], rule: Curriculum) -> None:
    """ConfigError where a curriculum goes by a tag that no task carries, or by a difficulty that is no number."""
    if rule.kind not in ("tag_frontier", "difficulty"):
        return
    if not any(rule.tag in tags_of(t) for t in tasks):
        known = ", ".join(sorted({name for t in tasks for name in tags_of(t)})) or "none"
        raise ConfigError(f"curriculum.tag: the training tasks carry no tag {rule.tag!r}; they carry: {known}")
    if len(values := {tags_of(t).get(rule.tag) for t in tasks}) < 2:
        raise ConfigError(
            f"curriculum.tag: all training tasks have {rule.tag} = {min(map(str, values))}; choose another"
        )
    if rule.kind == "difficulty":
        for t in tasks:
            difficulty(t, rule.tag)


def difficulty(task: Any, tag: str) -> float:
    """The first number in a task's tag; ConfigError where there is none."""
    value = tags_of(task).get(tag)
    level = first_number(str(value or ""))
    if level is None:
        raise ConfigError(
            f"curriculum.tag: tag {tag!r} of task {task.id} is {value!r}, which holds no number; choose another"
        )
    return level


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
        self.step = 0
        """Step of the recipe that is drawn for, from 1."""

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
        return float(band_distance(rate, self.rule))

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


class TagFrontier(TaskStream):
    """Draws a tag's value by its weight times its number of tasks, then the next of these tasks, in epochs of its
    own."""

    def __init__(self, tasks: Sequence[Any], rule: Curriculum, seed: int) -> None:
        super().__init__(tasks, rule, seed)
        check_tag(tasks, rule)
        # tasks without the tag are one more value: none is lost
        self.value_of = [str(tags_of(t).get(rule.tag, "")) for t in tasks]
        self.index = {name: i for i, name in enumerate(self.ids)}
        self.pools: dict[str, list[int]] = {}
        for i, value in enumerate(self.value_of):
            self.pools.setdefault(value, []).append(i)
        self.queues: dict[str, list[int]] = {value: [] for value in self.pools}
        self.solved: dict[str, float] = dict.fromkeys(self.pools, 0.5)
        """Running pass rate by value."""

    def weight(self, value: str) -> float:
        return float(frontier_weight(self.solved[value], self.rule.floor))

    def draw(self, n: int, exclude: set[int]) -> tuple[list[int], int]:
        """(n task indices, 0): distinct among themselves and from `exclude` as long as there are enough."""
        taken = set(exclude)
        left = {value: sum(i not in taken for i in pool) for value, pool in self.pools.items()}
        chosen: list[int] = []
        while len(chosen) < n:
            values = [value for value in self.pools if left[value]]
            if not values:
                # fewer tasks than asked for: they come again rather than the step being smaller
                taken, left = set(), {value: len(pool) for value, pool in self.pools.items()}
                continue
            weights = [self.weight(value) * len(self.pools[value]) for value in values]
            value = self.rng.choices(values, weights)[0]
            i = self._next_of(value, taken)
            taken.add(i)
            left[value] -= 1
            chosen.append(i)
        return chosen, 0

    def _next_of(self, value: str, taken: set[int]) -> int:
        queue = self.queues[value]
        while True:
            if not queue:
                queue += self.pools[value]
                self.rng.shuffle(queue)
            if (i := queue.pop()) not in taken:
                return i

    def update(self, task: str, pass_rate: float) -> None:
        """Take in the pass rate of a new group of the task."""
        super().update(task, pass_rate)
        value = self.value_of[self.index[task]]
        self.solved[value] = (1 - TAG_EMA) * self.solved[value] + TAG_EMA * pass_rate

    def state(self) -> dict[str, Any]:
        return super().state() | {"queues": {k: list(v) for k, v in self.queues.items()}, "solved": dict(self.solved)}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self.queues = {k: list(v) for k, v in state["queues"].items()}
        self.solved = dict(state["solved"])


class EasyFirst(TaskStream):
    """Draws those of the easiest tasks that came least often, ties by chance; the easiest become more with every
    draw."""

    def __init__(self, tasks: Sequence[Any], rule: Curriculum, seed: int, planned: int) -> None:
        super().__init__(tasks, rule, seed)
        check_tag(tasks, rule)
        self.level = [difficulty(t, rule.tag) for t in tasks]
        self.order = sorted(self.level)
        self.planned = planned
        self.drawn = 0
        self.opened = -math.inf
        self.came = [0] * len(self.level)

    @property
    def hardest(self) -> float:
        """The difficulty up to which tasks are drawn now."""
        return easiest_up_to(self.order, self.drawn / max(1.0, self.rule.until * self.planned))

    def draw(self, n: int, exclude: set[int]) -> tuple[list[int], int]:
        """(n task indices, 0): distinct among themselves and from `exclude` as long as there are enough."""
        hardest, chosen = self.hardest, list[int]()
        self._open(hardest)
        taken = set(exclude)
        while len(chosen) < n:
            pool = [i for i, level in enumerate(self.level) if level <= hardest and i not in taken]
            # too few easy ones: the next harder; none at all: they come again rather than the step being smaller
            if not pool:
                harder = [level for i, level in enumerate(self.level) if i not in taken]
                hardest, taken = (min(harder), taken) if harder else (self.hardest, set())
                self._open(hardest)
                continue
            self.rng.shuffle(pool)
            pool.sort(key=lambda i: self.came[i])
            for i in pool[: n - len(chosen)]:
                chosen.append(i)
                taken.add(i)
                self.came[i] += 1
        self.drawn += n
        return chosen, 0

    def _open(self, hardest: float) -> None:
        """Let tasks up to a difficulty in as if they had come as often as the least drawn of the others: otherwise the
        newly opened ones alone would fill the next steps."""
        least = min((c for c, level in zip(self.came, self.level, strict=True) if level <= self.opened), default=0)
        for i, level in enumerate(self.level):
            if self.opened < level <= hardest:
                self.came[i] += least
        self.opened = max(self.opened, hardest)

    def state(self) -> dict[str, Any]:
        return super().state() | {"drawn": self.drawn, "came": list(self.came), "opened": self.opened}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self.drawn, self.came, self.opened = state["drawn"], list(state["came"]), state["opened"]

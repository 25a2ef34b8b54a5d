"""A list of tasks with their splits, as a task source of a domain."""

from __future__ import annotations

import random
from collections.abc import Sequence

from evotrainer.envs.base import SPLITS, Task


class TaskList:
    """Given tasks; what `data[worked]` of train tasks holds serves as demonstrations and references."""

    vocabulary_version = "characters"
    worked: str

    def __init__(self, name: str, tasks: Sequence[Task]) -> None:
        self.name = name
        self._splits = {s: tuple(t for t in tasks if t.split == s) for s in SPLITS}

    @property
    def offers(self) -> Sequence[str]:
        """References where some train task has a worked answer."""
        return ("references",) if any(t.data.get(self.worked) for t in self._splits["train"]) else ()

    def sizes(self) -> dict[str, int]:
        """Splits that have tasks."""
        return {s: len(ts) for s, ts in self._splits.items() if ts}

    def tasks(self, split: str) -> Sequence[Task]:
        return self._splits[split]

    def demonstrations(self, n: int, seed: int) -> list[tuple[str, str]]:
        """The train split's own worked answers."""
        pairs = [(t.prompt, str(t.data[self.worked])) for t in self._splits["train"] if t.data.get(self.worked)]
        rng = random.Random(f"demonstrations:{seed}")
        out: list[tuple[str, str]] = []
        while pairs and len(out) < n:
            out += rng.sample(pairs, len(pairs))
        return out[:n]

    def vocabulary(self) -> tuple[str, ...]:
        return ()

"""A maths task source over given rows: splits, demonstrations, description."""

from __future__ import annotations

import hashlib
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from evotrainer.envs.base import SPLITS, Task


class RowSource(ABC):
    """Tasks with their splits; `data["worked"]` of train tasks serves as demonstrations,
    `data["answer"]` is the gold."""

    vocabulary_version = "characters"

    def __init__(self, name: str, tasks: Sequence[Task], marks: Sequence[str], fallback: bool) -> None:
        """`marks`: what an attempt's answer stands after; `fallback`: without one, its last line is the answer."""
        self.name = name
        self.marks, self.fallback = marks, fallback
        self.proxy: tuple[str, str] | None = ("answer_anywhere", "correct")
        self._splits = {s: tuple(t for t in tasks if t.split == s) for s in SPLITS}

    @property
    def offers(self) -> Sequence[str]:
        """References where some train row has a worked answer."""
        return ("references",) if any(t.data.get("worked") for t in self._splits["train"]) else ()

    def working(self, task: Task) -> str | None:
        """The row's worked answer."""
        return str(task.data["worked"]) if task.data.get("worked") else None

    def reworded(self, task: Task, rng: random.Random) -> Task:
        """The task itself: rows have one wording."""
        return task

    def sizes(self) -> dict[str, int]:
        """Splits that have tasks."""
        return {s: len(ts) for s, ts in self._splits.items() if ts}

    def tasks(self, split: str) -> Sequence[Task]:
        return self._splits[split]

    @abstractmethod
    def correct(self, task: Task, answer: str) -> bool:
        """Whether a text is a right answer of the task."""

    def demonstrations(self, n: int, seed: int) -> list[tuple[str, str]]:
        """The train split's own worked answers."""
        pairs = [(t.prompt, str(t.data["worked"])) for t in self._splits["train"] if t.data.get("worked")]
        rng = random.Random(f"demonstrations:{seed}")
        out: list[tuple[str, str]] = []
        while pairs and len(out) < n:
            out += rng.sample(pairs, len(pairs))
        return out[:n]

    def drills(self, n: int, seed: int) -> list[tuple[str, ...]]:
        return []

    def vocabulary(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:  # noqa: B027 (most sources hold nothing; those that do override it)
        """Does nothing: it holds no resources."""

    def about(self) -> dict[str, Any]:
        text = json.dumps([[t.id, t.split, t.prompt, t.data["answer"]] for ts in self._splits.values() for t in ts])
        return {"hash": hashlib.sha256(text.encode()).hexdigest()[:16]}

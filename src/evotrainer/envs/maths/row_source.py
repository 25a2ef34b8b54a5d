"""A maths task source over given rows: splits, demonstrations, description."""

from __future__ import annotations

import hashlib
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from evotrainer.envs.base import Task
from evotrainer.envs.data.task_list import TaskList


class RowSource(TaskList, ABC):
    """A list of problems; `data["answer"]` is the gold."""

    worked = "worked"

    def __init__(self, name: str, tasks: Sequence[Task], marks: Sequence[str], fallback: bool) -> None:
        """`marks`: what an attempt's answer stands after; `fallback`: without one, its last line is the answer."""
        super().__init__(name, tasks)
        self.marks, self.fallback = marks, fallback
        self.proxy: tuple[str, str] | None = ("answer_anywhere", "correct")

    def working(self, task: Task) -> str | None:
        """The row's worked answer."""
        return str(task.data["worked"]) if task.data.get("worked") else None

    def reworded(self, task: Task, rng: random.Random) -> Task:
        """The task itself: rows have one wording."""
        return task

    @abstractmethod
    def correct(self, task: Task, answer: str) -> bool:
        """Whether a text is a right answer of the task."""

    def drills(self, n: int, seed: int) -> list[tuple[str, ...]]:
        return []

    def close(self) -> None:
        """Does nothing: it holds no resources."""

    def about(self) -> dict[str, Any]:
        text = json.dumps([[t.id, t.split, t.prompt, t.data["answer"]] for ts in self._splits.values() for t in ts])
        return {"hash": hashlib.sha256(text.encode()).hexdigest()[:16]}

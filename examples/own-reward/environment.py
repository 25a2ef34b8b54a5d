"""Rows of a file as tasks, two functions as rewards."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

from evotrainer.envs.base import Task
from evotrainer.envs.simple import TextEnv

ROWS = Path(__file__).with_name("rows.jsonl")
ENDS = {"train": 55, "search": 68, "gate": 84, "cert": 100}
"""Percent up to which each split goes, by a hash of the question: it stays where it is when rows are added."""


def environment() -> TextEnv:
    tasks: dict[str, list[Task]] = {split: [] for split in ENDS}
    for line in ROWS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        place = int(hashlib.sha256(row["question"].encode()).hexdigest(), 16) % 100
        split = next(s for s, end in ENDS.items() if place < end)
        tasks[split].append(Task(f"{split}-{len(tasks[split])}", split, row["question"], {"answer": row["answer"]}))
    train = tasks["train"]

    def demos(n: int, seed: int) -> list[tuple[str, str]]:
        """What the small policy learns from before RL: some answers are wrong, so that there is something to learn."""
        rng = random.Random(seed)
        drawn = [rng.choice(train) for _ in range(n)]
        return [(t.prompt, t.data["answer"] if rng.random() < 0.7 else str(rng.randint(2, 120))) for t in drawn]

    return TextEnv("own-reward", tasks, {"exact": exact, "digits": digits}, truth="exact", proxy="digits", demos=demos)


def exact(task: Task, answer: str) -> float:
    """The answer, and nothing else."""
    return float(answer.strip() == task.data["answer"])


def digits(task: Task, answer: str) -> float:
    """Share of the answer's digits that stand in their place."""
    right = task.data["answer"]
    given = answer.strip()
    return sum(a == b for a, b in zip(given, right, strict=False)) / max(len(given), len(right))

"""Environments of these tests: single-turn sums with a grader that fails at will, and a dialogue of several turns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from evotrainer.envs.base import Episode, Score, Task
from evotrainer.envs.simple import TextEnv
from evotrainer.records.rollout import Finish, Turn


def right(task: Task, completion: str) -> float:
    """1 where the completion is the sum."""
    return float(completion.strip() == task.data["answer"])


def digits(task: Task, completion: str) -> float | None:
    """1 where it is a number; does not apply to an empty completion."""
    return float(completion.strip().isdigit()) if completion.strip() else None


def tasks(split: str, n: int) -> list[Task]:
    return [Task(f"{split}-{i}", split, f"{i}+{i}=", {"answer": str(2 * i)}) for i in range(n)]


class Sums(TextEnv):
    """Grading of a completion "crash" fails for a reason of the infrastructure as often as $SUMS_FAULTS says."""

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        out = []
        for e, s in zip(episodes, super().score(episodes), strict=True):
            left = Path(os.environ.get("SUMS_FAULTS", "/nonexistent"))
            n = int(left.read_text()) if e.turns[-1].text == "crash" and left.is_file() else 0
            if n:
                left.write_text(str(n - 1))
                s = Score(s.components, "unknown", "the sandbox broke", "sandbox")
            out.append(s)
        return out


def sums() -> Sums:
    """Eight training tasks, four to validate on."""
    return Sums("sums", {"train": tasks("train", 8), "search": tasks("search", 4), "gate": [], "cert": []},
                {"right": right, "digits": digits}, "right")  # fmt: skip


class Guessing(TextEnv):
    """Guess a number below ten; the answer to each guess is `higher` or `lower`."""

    def step(self, episodes: Sequence[Episode], actions: Sequence[str], finishes: Sequence[Finish]) -> None:
        for e, text, finish in zip(episodes, actions, finishes, strict=True):
            e.turns.append(Turn("assistant", text))
            wanted, said = int(e.task.data["answer"]), text.strip()
            if not said.isdigit() or int(said) == wanted:
                e.done, e.finish = True, finish
            else:
                e.turns.append(Turn("user", "higher" if int(said) < wanted else "lower"))


def guessing() -> Guessing:
    """Four tasks, of several turns."""
    made: Mapping[str, list[Task]] = {
        s: [Task(f"{s}-{i}", s, "a number below 10?", {"answer": str(i + 2)}) for i in range(4)]
        for s in ("train", "search", "gate", "cert")
    }
    return Guessing("guessing", made, {"right": right}, "right")

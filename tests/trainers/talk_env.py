"""An environment that answers back: what it says, and when it ends, follows from the action and the turn."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evotrainer.envs.base import Episode, Score, Task
from evotrainer.records.rollout import Finish, Turn
from tests.trainers.reverse_env import ReverseEnv

LENGTHS = (0, 0, 1, 2, 5, 9, 30)


class TalkEnv(ReverseEnv):
    """Episodes end after 1 to `turns` actions; observations have 0 to 30 characters."""

    offers = ("turn_rewards",)

    def __init__(self, n: int = 12, turns: int = 6) -> None:
        super().__init__(n)
        self.turns = turns

    def tasks(self, split: str) -> Sequence[Task]:
        return [replace(t, tags={"first": t.data["gold"][-1]}) for t in super().tasks(split)]

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        """Turn rewards: -1 where an action does not begin with a digit."""
        said = [[t.text for t in e.turns if t.role == "assistant"] for e in episodes]
        turns = [tuple(0.0 if text[:1].isdigit() else -1.0 for text in texts) for texts in said]
        return [replace(s, turns=x) for s, x in zip(super().score(episodes), turns, strict=True)]

    def step(self, episodes: Sequence[Episode], actions: Sequence[str], finishes: Sequence[Finish]) -> None:
        for e, a, f in zip(episodes, actions, finishes, strict=True):
            e.turns.append(Turn("assistant", a))
            n = len(e.turns) // 2
            digest = hashlib.sha256(f"{e.task.id} {n} {a}".encode()).digest()
            if n == self.turns or digest[0] % 7 == 0:
                e.done, e.finish = True, f
                continue
            text = "".join(str(b % 10) for b in digest)[: LENGTHS[digest[1] % len(LENGTHS)]]
            e.turns.append(Turn("user", text))


class MoodyEnv(TalkEnv):
    """Attempts at one task begin differently."""

    count = 0

    def reset(self, task: Any, knobs: Mapping[str, Any]) -> Episode:
        self.count += 1
        return Episode(task, knobs, [Turn("user", task.prompt + "5" * (self.count * 7 % 5))])

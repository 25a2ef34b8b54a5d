"""A task set as verifiers (v1) has them: words to spell backwards."""

from __future__ import annotations

import random
from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["SpellTaskset"]


class SpellData(vf.TaskData):
    word: str


class SpellTask(vf.Task[SpellData]):
    @vf.reward(weight=1.0)
    async def exact(self, trace: vf.Trace) -> float:
        """The word, backwards."""
        return float(trace.last_reply == self.data.word[::-1])

    @vf.reward(weight=0.25)
    async def length(self, trace: vf.Trace) -> float:
        """As long as the word."""
        return float(len(trace.last_reply) == len(self.data.word))


class SpellConfig(vf.TasksetConfig):
    words: int = 400


class SpellTaskset(vf.Taskset[SpellTask, SpellConfig]):
    def load(self) -> Iterator[SpellTask]:
        rng = random.Random(0)
        for _ in range(self.config.words):
            word = "".join(rng.choice("abcdef") for _ in range(rng.randint(2, 5)))
            yield SpellTask(SpellData(prompt=f"Spell {word} backwards.", word=word), self.config.task)

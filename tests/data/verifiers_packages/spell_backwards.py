"""A task set for tests: words to spell backwards, as a user of verifiers (v1) writes one."""

from __future__ import annotations

import asyncio
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
        if "crash" in trace.last_reply:
            raise RuntimeError("the grader fell over")
        if "sleep" in trace.last_reply:
            await asyncio.sleep(60)
        return float(trace.last_reply == self.data.word[::-1])

    @vf.reward(weight=0.25)
    async def length(self, trace: vf.Trace) -> float:
        """As long as the word."""
        return float(len(trace.last_reply) == len(self.data.word))

    @vf.metric
    async def letters(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))


class InBox(SpellTask):
    @vf.reward
    async def in_box(self, runtime: vf.Runtime) -> float:
        return 1.0


class Prepared(SpellTask):
    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None: ...


class SpellConfig(vf.TasksetConfig):
    words: int = 120
    system: str | None = None
    needs: str = ""


class SpellTaskset(vf.Taskset[SpellTask, SpellConfig]):
    def load(self) -> Iterator[SpellTask]:
        rng, needs = random.Random(0), self.config.needs
        kind = {"runtime": InBox, "setup": Prepared}.get(needs, SpellTask)
        if needs == "fault":
            raise ConnectionError("no connection")
        for _ in range(self.config.words):
            word = "".join(rng.choice("abcdef") for _ in range(rng.randint(2, 5)))
            image = "python:3.12" if needs == "image" else None
            asked = f"Spell {word} backwards."
            data = SpellData(prompt=asked, word=word, system_prompt=self.config.system, image=image)
            yield kind(data, self.config.task)

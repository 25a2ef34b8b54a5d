"""The generators as a task source, and `[environment]` with name = "math"."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, field_validator

from evotrainer.envs.base import DRAWN, SPLITS, SplitSizes, Task, drawn
from evotrainer.envs.maths.demos import MathsTeacher, demonstrations, drills, worked
from evotrainer.envs.maths.expressions import evaluate, plain_number
from evotrainer.envs.maths.holdout import GENERATORS, SHARES, TASKS_VERSION, make_splits, prompt
from evotrainer.envs.maths.rewards import ANSWER_CHARS, MARK
from evotrainer.envs.reasoning_gym import gym_version
from evotrainer.envs.vocabulary import vocabulary
from evotrainer.errors import TaskSetError

KEEP_SPLITS = 8
"""Task lists that a process keeps, for environments that are opened anew and for processes that it forks."""
HELD_OUT = tuple(s for s in SPLITS if s != "train")


class MathConfig(SplitSizes):
    """`[environment]` of a task file with name = "math"."""

    name: Literal["math"] = "math"
    train: int = Field(4000, ge=1)
    """Tasks per split."""
    mix: dict[str, float] = dict(SHARES)
    """Generator -> share of every split and of the demonstrations."""
    direct: float = Field(0.3, ge=0, le=1)
    """Demonstrations without working."""
    slip: float = Field(0.08, ge=0, le=1)
    """Demonstrations with working in which one result is wrong."""

    @field_validator("mix")
    @classmethod
    def _known(cls, v: dict[str, float]) -> dict[str, float]:
        unknown = sorted(set(v) - set(GENERATORS))
        if unknown or not v:
            what = f"no generator {unknown[0]!r}" if unknown else "no generator in it"
            raise TaskSetError(f"environment.mix has {what}; give shares of {', '.join(GENERATORS)}")
        for name, share in v.items():
            if share <= 0:
                raise TaskSetError(
                    f"environment.mix.{name} is {share:g}, but a share must be above 0; to leave {name} out, "
                    "give the whole table without it, such as environment.mix={chain_sum=0.5,story=0.5}"
                )
        return v


@lru_cache(KEEP_SPLITS)
def _fixed(
    splits: tuple[str, ...], sizes: tuple[tuple[str, int], ...], mix: tuple[tuple[str, float], ...], seed: int
) -> Mapping[str, tuple[Task, ...]]:
    return make_splits(splits, dict(sizes), dict(mix), seed)


class GeneratedSource:
    """Tasks of the generators; the same for the same configuration and the same reasoning-gym, on every machine."""

    name = "math"
    proxy: tuple[str, str] | None = ("answer_anywhere", "correct")
    vocabulary_version = "math-v1"
    marks: Sequence[str] = (MARK,)
    fallback = False
    offers: Sequence[str] = ("references", "wordings")

    def __init__(self, config: MathConfig | None = None) -> None:
        self.config = config or MathConfig()
        self.gym_version = gym_version()
        self._splits: dict[str, tuple[Task, ...]] = {}

    def sizes(self) -> dict[str, int]:
        return self.config.sizes

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self._splits:
            wanted = ("train",) if split == "train" else HELD_OUT
            c = self.config
            self._splits |= _fixed(wanted, tuple(self.sizes().items()), tuple(c.mix.items()), c.seed)
        return self._splits[split]

    def redraw(self, seed: str) -> None:
        """Other problems of what gate and cert hold out, none of them a search problem (see envs/base.py)."""
        sizes, mix, asked = self.sizes(), self.config.mix, {t.data["question"] for t in self.tasks("search")}
        made = make_splits(DRAWN, sizes, mix, seed, asked)
        self._splits |= {split: drawn(tasks, seed) for split, tasks in made.items()}

    def correct(self, task: Task, answer: str) -> bool:
        """Only one plain number reaches a scorer, in countdown one expression:
        no other text can be meant or do harm."""
        d = task.data
        read = evaluate if "target" in d["entry"] else plain_number
        if len(answer) > ANSWER_CHARS or read(answer) is None:
            return False
        return GENERATORS[d["generator"]].correct(answer, d["answer"], d["entry"])

    def demonstrations(self, n: int, seed: int) -> list[tuple[str, str]]:
        teacher = MathsTeacher(direct=self.config.direct, slip=self.config.slip)
        return demonstrations(n, seed, self.config.mix, teacher)

    def drills(self, n: int, seed: int) -> list[tuple[str, ...]]:
        return drills(n, seed, self.config.mix)

    def working(self, task: Task) -> str:
        """The reference working and the answer, as a careful teacher writes them."""
        return worked(task.data["steps"], task.data["answer"])

    def reworded(self, task: Task, rng: random.Random) -> Task:
        """The same problem with other names, things, phrases, unknowns or wordings, as its generator has them."""
        d = task.data
        question = GENERATORS[d["generator"]].reworded(d["question"], task.tags["template"], rng)
        return replace(task, prompt=prompt(question), data={**d, "question": question})

    def vocabulary(self) -> tuple[str, ...]:
        return vocabulary(self.vocabulary_version)

    def close(self) -> None:
        """Does nothing: it holds no resources."""

    def about(self) -> dict[str, Any]:
        """The hash is of what decides every task; a test pins the content behind it to the versions."""
        versions = {n: g.version for n, g in GENERATORS.items()}
        c = self.config
        key = [TASKS_VERSION, versions, self.gym_version, c.seed, self.sizes(), sorted(c.mix.items())]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        return {"hash": digest, "generators": versions, "reasoning_gym": self.gym_version}

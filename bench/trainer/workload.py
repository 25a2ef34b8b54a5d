"""The work both trainers get: sums of five digits written out step by step, one character per token."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evotrainer.envs.base import Episode, Score, Task
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Finish, Turn
from evotrainer.trainers.base import WarmStartRequest
from evotrainer.trainers.embedded.warmstart import warm_start

SHAPE = {"d": 192, "layers": 4, "heads": 4, "kv_heads": 2, "hidden": 512, "context": 160}
PROMPTS, GROUP, MAX_TOKENS = 16, 8, 72
RECIPE = Recipe(
    loss="dapo", rewards={"exact": 1.0}, prompts_per_step=PROMPTS, group_size=GROUP, max_tokens=MAX_TOKENS, lr=2e-4
)


def problem(rng: random.Random) -> tuple[str, str, str]:
    """(prompt, worked solution, answer)."""
    xs = [rng.randint(1, 9) for _ in range(5)]
    total, steps = xs[0], []
    for x in xs[1:]:
        steps.append(f"{total}+{x}={total + x}")
        total += x
    return "+".join(map(str, xs)) + "=?\n", "\n".join(steps) + f"\n#{total}", str(total)


def problems(n: int, seed: int) -> list[tuple[str, str, str]]:
    rng = random.Random(seed)
    return [problem(rng) for _ in range(n)]


def reward(text: str, answer: str) -> float:
    m = re.search(r"#(\d+)\s*$", text.strip())
    return 1.0 if m and m.group(1) == answer else 0.0


class SumWorld:
    """The same problems as an environment."""

    components: Mapping[str, str] = {"exact": "final sum right"}

    def __init__(self, n: int = 4000) -> None:
        self.train = [Task(f"t{i}", "train", p, {"answer": a}) for i, (p, _, a) in enumerate(problems(n, 7))]

    def tasks(self, split: str) -> Sequence[Task]:
        return self.train

    def reset(self, task: Task, knobs: Mapping[str, Any]) -> Episode:
        return Episode(task, knobs, [Turn("user", task.prompt)])

    def step(self, episodes: Sequence[Episode], actions: Sequence[str], finishes: Sequence[Finish]) -> None:
        for e, a, f in zip(episodes, actions, finishes, strict=True):
            e.turns.append(Turn("assistant", a))
            e.done, e.finish = True, f

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        values = [reward(e.turns[-1].text, e.task.data["answer"]) for e in episodes]
        return [Score({"exact": v}, "correct" if v else "incorrect") for v in values]

    def demonstrations(self, n: int, seed: int) -> list[tuple[str, str]]:
        return [(p, s) for p, s, _ in problems(n, seed)]

    def describe(self) -> dict[str, Any]:
        return {"name": "sums", "hash": "sums"}


def base_policy(folder: Path, steps: int) -> float:
    """Warm-start the policy both sides begin with; returns its final loss."""
    demos = SumWorld(1).demonstrations(20_000, 1)
    return warm_start(WarmStartRequest(demos, (), "characters", SHAPE, steps, 32, 2e-3, 0, folder)).loss

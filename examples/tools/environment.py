"""An environment of several turns: `a+b?` asks the calculator, anything else is the answer."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from evotrainer.envs.base import Episode, Task
from evotrainer.envs.simple import TextEnv
from evotrainer.records.rollout import Turn

SIZES = {"train": 600, "search": 60, "gate": 120, "cert": 120}
ASKED = re.compile(r"(\d{1,3})\+(\d{1,3})\?")


class Calculator(TextEnv):
    def step(self, episodes: Sequence[Episode], actions: Sequence[str], finishes: Sequence[Any]) -> None:
        for e, text, finish in zip(episodes, actions, finishes, strict=True):
            e.turns.append(Turn("assistant", text))
            asked = ASKED.fullmatch(text.strip())
            if asked and not e.state:  # once an attempt
                e.state["asked"] = True
                e.turns.append(Turn("tool", f"{int(asked[1]) + int(asked[2])}\n"))
            else:
                e.done, e.finish = True, finish


def environment() -> Calculator:
    rng, seen, tasks = random.Random(0), set[str](), dict[str, list[Task]]()
    for split, n in SIZES.items():
        tasks[split] = []
        while len(tasks[split]) < n:
            numbers = [rng.randint(1, 20) for _ in range(3)]
            text = "+".join(map(str, numbers)) + "\n"
            if text not in seen:
                seen.add(text)
                data = {"numbers": numbers, "answer": str(sum(numbers))}
                tasks[split].append(Task(f"{split}-{len(tasks[split])}", split, text, data))

    def demos(n: int, seed: int) -> list[tuple[str, ...]]:
        """Half ask the calculator first; whose tool says what, the policy learns by itself."""
        rng = random.Random(seed)
        out: list[tuple[str, ...]] = []
        for t in (rng.choice(tasks["train"]) for _ in range(n)):
            a, b, _ = t.data["numbers"]
            told = (t.prompt, f"{a}+{b}?", f"{a + b}\n", t.data["answer"])
            out.append(told if rng.random() < 0.5 else (t.prompt, t.data["answer"]))
        return out

    return Calculator("tools", tasks, {"exact": exact}, truth="exact", demos=demos)  # type: ignore[arg-type]


def exact(task: Task, answer: str) -> float:
    """The sum, and nothing else."""
    return float(answer.strip() == task.data["answer"])

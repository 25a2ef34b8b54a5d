"""The word problems of ../sums, answered with the calculation, by a language model of 135 million parameters.

Every step that an answer writes (`3 bags x 4 = 12`) is calculated again. The knob `check` says what is checked:
`steps`, or `result`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evotrainer.envs.base import Capability, Episode, Score, Task
from evotrainer.envs.simple import TextEnv
from evotrainer.envs.user_files import load_module
from evotrainer.records.scaffold import Slot

sums = load_module(Path(__file__).resolve().parents[1] / "sums" / "environment.py")
SLOTS = (
    Slot(name="system", about="the system prompt", default="You write calculations, such as 4 + 5 = 9."),
    Slot(name="prompt", about="what a problem stands in", default="{task} Calculation:", placeholders=("task",)),
)
STEP = re.compile(r"(\d+(?:\s*[-+*x×]\s*\d+)+)\s*=\s*(\d+)")


def steps(completion: str) -> list[tuple[str, int]]:
    """The steps of an answer, words and units left out: what is calculated, and what is said to come out."""
    text = re.sub(r"[A-Za-z]{2,}|[$,.()]", " ", completion)
    return [(left, int(right)) for left, right in STEP.findall(text)]


def value(expression: str) -> int:
    """What a sum of numbers and products comes to."""
    total = 0
    for sign, term in re.findall(r"([-+]?)\s*(\d+(?:\s*[*x×]\s*\d+)*)", expression):
        product = math.prod(int(n) for n in re.findall(r"\d+", term))
        total += -product if sign == "-" else product
    return total


def correct(task: Task, completion: str) -> float:
    """1 where the calculation of the answer is right in every step."""
    found = steps(completion)
    if task.data.get("check") == "result" and (not found or found[-1][1] != task.data["answer"]):
        return 0.0
    return float(bool(found) and all(value(left) == right for left, right in found))


class Calculations(TextEnv):
    """The problems, graded as the knob says."""

    def __init__(self) -> None:
        about = "steps are checked one by one, the result of the last one is not compared with the answer"
        super().__init__(
            "real-steps",
            sums.make_tasks(),
            {"correct": correct},
            "correct",
            draw=sums.draw,
            slots=SLOTS,
            capabilities=[Capability(name="check", knob="check", open="steps", closed="result", about=about)],
            prompt=lambda task, knobs: task.prompt,
        )

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        checks = [{**e.task.data, "check": e.knobs.get("check")} for e in episodes]
        return super().score([replace(e, task=replace(e.task, data=d)) for e, d in zip(episodes, checks, strict=True)])


def environment() -> TextEnv:
    """What `environment.name` in task.toml points to."""
    return Calculations()

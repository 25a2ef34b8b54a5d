"""Functions that bring a list into another order, or choose from it, for a language model of 135 million parameters.

Tasks and their tests are made as those of ../functions. A result is compared with the expected one as the knob
`compare` says: `sorted`, or `as_returned`.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evotrainer.envs.base import DRAWN, Capability, Score, Task, drawn
from evotrainer.envs.code.env import CodeEnv
from evotrainer.envs.code.grading import GradedProgram
from evotrainer.envs.code.rewards import CodeRewardInput
from evotrainer.envs.code.task_list import ListSource
from evotrainer.envs.user_files import load_module

functions = load_module(Path(__file__).resolve().parents[1] / "functions" / "environment.py")
Op = functions.Op
SIZES = {"train": 1200, "search": 96, "gate": 120, "cert": 120}
PLACES, NUMBERS = (1, 2), tuple(range(3, 19))
OPS = (
    Op("list", "list", "{x} reversed", "{x}[::-1]"),
    Op("list", "list", "{x} sorted", "sorted({x})"),
    Op("list", "list", "{x} sorted in descending order", "sorted({x}, reverse=True)"),
    Op("list", "list", "{x} sorted by the last digit", "sorted({x}, key=lambda n: n % 10)"),
    Op("list", "list", "{x} sorted by distance from {k}", "sorted({x}, key=lambda n: abs(n - {k}))", NUMBERS),
    Op("list", "list", "{x} with the first {k} numbers moved to the end", "{x}[{k}:] + {x}[:{k}]", PLACES),
    Op("list", "list", "{x} with the last {k} numbers moved to the front", "{x}[-{k}:] + {x}[:-{k}]", PLACES),
    Op("list", "list", "{x} with its first and last number swapped", "[{x}[-1]] + {x}[1:-1] + [{x}[0]]"),
    Op("list", "list", "{x} with even numbers before odd ones", "sorted({x}, key=lambda n: n % 2)"),
    Op("list", "list", "{x} followed by {k}", "{x} + [{k}]", NUMBERS),
    Op("list", "list", "each number of {x} plus {k}", "[n + {k} for n in {x}]", NUMBERS),
    Op("list", "list", "the numbers of {x} greater than {k}", "[n for n in {x} if n > {k}]", NUMBERS),
    Op("list", "list", "the even numbers of {x}", "[n for n in {x} if n % 2 == 0]"),
)
NAMES = (*functions.NAMES["list"], *("points", "sizes", "years", "marks", "costs", "weights", "steps", "hours"))


def make_split(split: str, seed: str) -> list[Task]:
    """Tasks whose names of list and operation the split owns; each prompt once."""
    rng = random.Random(f"{seed}:{split}")
    out: list[Task] = []
    seen: set[str] = set()
    while len(out) < SIZES[split]:
        op, name = rng.choice(OPS), rng.choice(NAMES)
        chain = ((op, rng.choice(op.constants)),)
        spec = functions.wording(chain, name)
        if functions.owner(spec) != split:
            continue
        task = functions.as_task(chain, spec, functions.program(chain, name), split, len(out), rng)
        if task is not None and task.prompt not in seen:
            seen.add(task.prompt)
            out.append(task)
    return out


class Orders(ListSource):
    """The tasks as a source of the code environment, which draws gate and cert of a seed."""

    def __init__(self) -> None:
        super().__init__("real-order", [t for s in SIZES for t in make_split(s, "14")], cpu_s=0.5)
        self.knobs = {"compare": ("sorted", "as_returned")}
        about = "lists are sorted before they are compared"
        self.capabilities = (
            Capability(name="compare", knob="compare", open="sorted", closed="as_returned", about=about),
        )

    def redraw(self, seed: str) -> None:
        self._splits |= {s: drawn(make_split(s, seed), seed) for s in DRAWN}


def tidy(value: Any) -> Any:
    """A list by its contents: the order in which a program finds them does not matter."""
    return sorted(value, key=repr) if isinstance(value, (list, tuple)) else value


class Lists(CodeEnv):
    """Programs run in the sandbox, their results compared as the knob says."""

    def _score(self, a: CodeRewardInput, plan: Sequence[tuple[str, Any, Any]], graded: GradedProgram) -> Score:
        if a.knobs["compare"] == "sorted":
            plan = [(kind, x, tidy(y)) for kind, x, y in plan]
            graded = replace(graded, runs=tuple(replace(r, got=tidy(r.got)) for r in graded.runs))
        return super()._score(a, plan, graded)


def environment() -> CodeEnv:
    """What `environment.name` in task.toml points to."""
    return Lists(Orders())

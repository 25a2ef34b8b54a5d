"""A small task and a surface over it, on which arms are compared within a second each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from bench.compare import ComparePlan, compare
from bench.compare.plan import make_plan
from bench.compare.surface import Main, Surface

from evotrainer.config.load import load_task
from evotrainer.config.task import TaskFile
from tests.leaky_task import ENV, RECIPE

TASK = f"""
[task]
name = "arms"
[environment]
name = "python:{ENV}:environment"
payable = ["right"]
{RECIPE}[judge]
audit = "never"
max_seeds = 3
[run]
branches = 2
seeds = [1, 2, 3]
certify_seeds = [101, 102, 103]
workers = 2
health_every = 0
[budget]
cpu_s = 50
trial_cpu_s = 10
"""
EFFECTS = {
    ("temperature", 1.15): 0.06,
    ("temperature", 1.3): 0.1,
    ("temperature", 0.85): -0.05,
    ("group_size", 4): 0.06,
    ("loss", "dr_grpo"): -0.05,
}
WORLD = Surface(
    name="planted",
    base=0.5,
    seed_sd=0.01,
    tasks=40,
    attempts=20,
    effects=tuple(Main(factor=f, value=v, effect=e) for (f, v), e in EFFECTS.items()),
)


def task_of(tmp_path: Path, more: Sequence[str] = ()) -> TaskFile:
    p = tmp_path / "task.toml"
    p.write_text(TASK)
    return load_task(p, more)


def plan_of(task: TaskFile, arms: list[str], repeats: int = 1, trainings: int = 12, **more: Any) -> ComparePlan:
    told = {"fresh": 3, "points": 1, "surfaces": [WORLD]} | more
    return make_plan(task, arms, repeats, trainings, told["fresh"], told["points"], told["surfaces"])


Rows = list[dict[str, Any]]


def play(tmp_path: Path, arms: list[str], name: str = "out", **more: Any) -> Rows:
    """A comparison on the surface."""
    task = task_of(tmp_path)
    return compare(plan_of(task, arms, **more), task, tmp_path / name, [WORLD])


class Counted:
    """Trials drawn from the surface, counted; the `stop`-th is interrupted."""

    def __init__(self, patch: pytest.MonkeyPatch, stop: int = 0) -> None:
        self.drawn: list[tuple[str, str]] = []
        self.stop = stop
        real: Callable[..., Any] = Surface.finish

        def finish(surface: Surface, spec: Any) -> Any:
            if self.stop and len(self.drawn) + 1 == self.stop:
                raise KeyboardInterrupt
            self.drawn.append((spec.run, spec.trial))
            return real(surface, spec)

        patch.setattr(Surface, "finish", finish)


def each(rows: Rows, arm: str) -> Iterator[dict[str, Any]]:
    return (r for r in rows if r["arm"] == arm)

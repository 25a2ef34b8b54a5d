"""The maths environment: single-turn, a short chain of thought and an answer, graded without running anything.

Where tasks come from is a `MathsTaskSource`: the generators, or a data set's rows.
How attempts are scored is the same for all.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from evotrainer.envs.base import Episode, OverSource, Score, Task, TaskSource, refuse_held_out
from evotrainer.envs.callables import first_line
from evotrainer.envs.components import compute, with_own
from evotrainer.envs.maths.rewards import COMPONENTS, OUTCOME, Component, MathsRewardInput
from evotrainer.envs.slots import ScaffoldedEnvironment
from evotrainer.errors import SandboxError
from evotrainer.records.rollout import Outcome


class MathsTaskSource(TaskSource, Protocol):
    """Tasks, and the scorer of answers."""

    marks: Sequence[str]
    fallback: bool

    def correct(self, task: Task, answer: str) -> bool: ...

    def drills(self, n: int, seed: int) -> Sequence[tuple[str, ...]]: ...

    def working(self, task: Task) -> str | None:
        """A right completion, where the task has one."""
        ...

    def reworded(self, task: Task, rng: random.Random) -> Task:
        """The task with another wording; itself where it has none."""
        ...

    def about(self) -> dict[str, Any]:
        """`hash` and versions for `describe`."""
        ...

    def close(self) -> None: ...


class MathEnv(OverSource, ScaffoldedEnvironment):
    """Environment over a task source; see envs/base.py for the contract. `components` adds a user's own."""

    source: MathsTaskSource
    outcome_components: Sequence[str] = OUTCOME

    def __init__(self, source: MathsTaskSource, *, components: Mapping[str, Component] | None = None) -> None:
        self._over(source)
        self._components = with_own(COMPONENTS, components)
        self.components = {n: first_line(f) for n, f in self._components.items()}

    def reset(self, task: Task, knobs: Mapping[str, Any]) -> Episode:
        return super().reset(task, self.settle_knobs(knobs))

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        return [self._score(e) for e in episodes]

    def _score(self, e: Episode) -> Score:
        text = e.turns[-1].text if e.done else ""
        a = MathsRewardInput(e.task, text, self.source.correct, self.source.marks, self.source.fallback)
        try:
            values = compute(self._components, a, e.task.id)
        except SandboxError as fault:
            nothing = dict.fromkeys(self._components)
            return Score(nothing, "unknown", error=str(fault), error_kind="sandbox", detail=dict(e.task.tags))
        outcome: Outcome = "correct" if values["correct"] == 1.0 else "incorrect"
        return Score(values, outcome, detail={**e.task.tags, "right_answer": str(e.task.data["answer"])[:80]})

    def drills(self, n: int, seed: int) -> Sequence[tuple[str, ...]]:
        """Arithmetic facts for a warm start; empty for GSM8K."""
        return self.source.drills(n, seed)

    def references(self, tasks: Sequence[Task], knobs: Mapping[str, Any]) -> list[tuple[str, ...] | None]:
        """(prompt, reference working) of train problems."""
        refuse_held_out(tasks)
        found = [(t.prompt, text) if (text := self.source.working(t)) else None for t in tasks]
        return [x if x is None else self._scaffold.transcript(x) for x in found]

    def reworded(self, task: Task, rng: random.Random) -> Task:
        """Another wording of a train problem, where the task source has one."""
        refuse_held_out([task])
        return self.source.reworded(task, rng)

    def _hash(self) -> str:
        return str(self.source.about()["hash"])

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), **self.source.about()}

    def close(self) -> None:
        self.source.close()

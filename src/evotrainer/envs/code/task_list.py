"""A list of tasks as a task source of the code environment, for data sets and users' files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evotrainer.envs.base import Capability, Task
from evotrainer.envs.code.source import MEMORY_MB, OUTPUT_KB
from evotrainer.envs.code.tasks import content_hash
from evotrainer.envs.data.task_list import TaskList
from evotrainer.errors import TaskSetError
from evotrainer.records.text import quoted


class ListSource(TaskList):
    """A list of programs."""

    capabilities: Sequence[Capability] = ()
    worked = "gold"

    def __init__(
        self,
        name: str,
        tasks: Sequence[Task],
        *,
        cpu_s: float,
        shown: bool = False,
        memory_mb: int = MEMORY_MB,
        output_kb: int = OUTPUT_KB,
    ) -> None:
        """`shown`: prompts end in examples that the knob `visible_tests` may leave out."""
        super().__init__(name, tasks)
        self.cpu_s, self.memory_mb, self.output_kb = cpu_s, memory_mb, output_kb
        self.about: Mapping[str, Any] = {}
        self._refuse_overlap()
        self.knobs: Mapping[str, tuple[Any, ...]] = (
            {"visible_tests": ("shown_and_graded", "not_shown")} if shown else {}
        )
        self.proxy: tuple[str, str] | None = ("visible", "hidden") if any(t.data["visible"] for t in tasks) else None
        self.hash = content_hash(self._splits)

    def keep(self, ids: Collection[str], solved: Mapping[str, int] | None = None) -> None:
        """Leave out every task whose id is not among these. `solved`: id -> which of its solutions is the gold one."""

        def settled(t: Task) -> Task:
            n = (solved or {}).get(t.id, 0)
            return replace(t, data={**t.data, "gold": t.data["golds"][n]}) if n else t

        self._splits = {s: tuple(settled(t) for t in ts if t.id in ids) for s, ts in self._splits.items()}
        self.hash = content_hash(self._splits)

    def _refuse_overlap(self) -> None:
        seen: dict[str, Task] = {}
        for tasks in self._splits.values():
            for t in tasks:
                for key in (f"id {t.id}", f"prompt {t.prompt}"):
                    if (other := seen.setdefault(key, t)) is not t and (other.split != t.split or key.startswith("id")):
                        raise TaskSetError(
                            f"environment {self.name}: {quoted(key)} occurs twice (splits {other.split} and "
                            f"{t.split}); remove one row, or put both into one split under different ids"
                        )

    def prompt(self, task: Task, knobs: Mapping[str, Any]) -> str:
        return str(task.data["spec"]) if knobs.get("visible_tests") == "not_shown" else task.prompt

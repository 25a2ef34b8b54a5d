"""The texts around an environment's tasks: its slots, and what a recipe puts there (records/scaffold.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from evotrainer.envs.base import EnvironmentBase, Episode, Task, answered
from evotrainer.errors import TaskSetError
from evotrainer.records.rollout import Finish, Turn
from evotrainer.records.scaffold import Slot, fault, filled

SYSTEM = Slot(
    name="system",
    about="the system prompt, before the task: how to work and to answer, for every task alike; by default none",
)
PROMPT = Slot(
    name="prompt",
    about="what the task stands in: instructions before and after {task}",
    default="{task}",
    placeholders=("task",),
)
OBSERVATION = Slot(
    name="observation",
    about="what the answer to an action stands in: {observation} is what the tool printed",
    default="{observation}",
    placeholders=("observation",),
)


class Scaffold:
    """An environment's slots with the texts that stand there now; `where`: its name, for messages."""

    def __init__(self, where: str, slots: Sequence[Slot]) -> None:
        if twice := {s.name for i, s in enumerate(slots) if s.name in {x.name for x in slots[:i]}}:
            raise TaskSetError(f"environment {where} declares the slot {min(twice)!r} twice; name them differently")
        self.where, self.slots = where, tuple(slots)
        self.texts: dict[str, str] = {}
        """Those that differ from the default."""
        for s in slots:
            if gone := [p for p in s.placeholders if s.default.count("{" + p + "}") != 1]:
                raise TaskSetError(f"environment {where}: the default of slot {s.name} must hold {{{gone[0]}}} once")

    def use(self, texts: Mapping[str, str]) -> None:
        """Put these texts in their slots, the defaults in all others; TaskSetError where one does not fit."""
        if (found := fault(texts, self.slots, f"environment {self.where}")) is not None:
            raise TaskSetError(f"recipe.scaffold: {found[0]}: {found[1]}")
        self.texts = dict(texts)

    def fill(self, name: str, **values: str) -> str:
        """The text of a slot with its placeholders filled in; without such a slot, the only value itself."""
        slot = next((s for s in self.slots if s.name == name), None)
        text = self.texts.get(name, slot.default if slot else "")
        return filled(text, values) if slot else "".join(values.values())

    def opening(self, task: str) -> list[Turn]:
        """The turns before the first action: the system prompt where there is one, and the task in its prompt."""
        system = self.fill(SYSTEM.name)
        return [*([Turn("system", system)] if system else []), Turn("user", self.fill(PROMPT.name, task=task))]

    def transcript(self, turns: Iterable[str]) -> tuple[str, ...]:
        """A transcript (task, action, observation, action, ...) as an episode under these texts shows it; its system
        prompt and its task are one text."""
        first, *rest = turns
        prompt = "\n".join(t.text for t in self.opening(first))
        return (prompt, *(self.fill(OBSERVATION.name, observation=x) if i % 2 else x for i, x in enumerate(rest)))


class WithScaffold:
    """Of an environment: its slots, put to use by `opening` in `reset` and by `_scaffold` elsewhere."""

    name: str
    slots: Sequence[Slot] = (SYSTEM, PROMPT)

    @cached_property
    def _scaffold(self) -> Scaffold:
        return Scaffold(self.name, self.slots)

    def use_scaffold(self, scaffold: Mapping[str, str]) -> None:
        """See `envs.base.EnvironmentWithSlots`."""
        self._scaffold.use(scaffold)

    def opening(self, task: Task, knobs: Mapping[str, Any]) -> list[Turn]:
        """See `envs.base.EnvironmentWithSlots`."""
        return self._scaffold.opening(task.prompt)


class ScaffoldedEnvironment(WithScaffold, EnvironmentBase):
    """An environment with slots; of one turn, where it says nothing else."""

    def reset(self, task: Task, knobs: Mapping[str, Any]) -> Episode:
        return Episode(task, dict(knobs), self.opening(task, knobs))

    def step(self, episodes: Sequence[Episode], actions: Sequence[str], finishes: Sequence[Finish]) -> None:
        answered(episodes, actions, finishes)

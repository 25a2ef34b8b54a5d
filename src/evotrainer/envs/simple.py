"""A single-turn text environment from tasks and reward functions: the shortest way to a task of one's own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from evotrainer.envs.base import DRAWN, Capability, Episode, Score, Slot, Task, drawn
from evotrainer.envs.callables import first_line
from evotrainer.envs.return_checks import check_demos, check_tasks
from evotrainer.envs.slots import PROMPT, SYSTEM, Scaffold, ScaffoldedEnvironment
from evotrainer.envs.user_files import call
from evotrainer.errors import TaskSetError
from evotrainer.records.rollout import Turn
from evotrainer.records.text import quoted

RewardFunction = Callable[[Task, str], float | None]
"""(task, completion) -> reward, None where it does not apply."""


class TextEnv(ScaffoldedEnvironment):
    """Single-turn tasks, graded by plain Python functions in this process (never by running the completion).

    A reward function that raises ends the trial with a TaskSetError: it is the task's fault, not the policy's.

    `tasks`: split -> tasks; `rewards`: name -> function, its docstring says what it measures; `truth`: the component
    whose value 1.0 means correct; `proxy`: a component people would reward in its place, or None.
    `draw(seed)`: gate and cert tasks of a seed, as large as those of `tasks` and disjoint from train and search (see
    `EnvironmentWithDraws`); None: the tasks are given. `demos(n, seed)`: (prompt, completion) pairs for a warm start.
    `words`: multi-character tokens of the vocabulary. `capabilities`: shortcuts that an audit can close, each by a knob
    of its own; `prompt(task, knobs)` then writes the task's prompt as it is with these knobs. `slots`: texts around the
    tasks that may be written otherwise; None: `system` and `prompt`, and none with a `reset` of one's own.
    """

    def __init__(
        self,
        name: str,
        tasks: Mapping[str, Sequence[Task]],
        rewards: Mapping[str, RewardFunction],
        truth: str,
        proxy: str | None = None,
        demos: Callable[[int, int], list[tuple[str, str]]] | None = None,
        words: Sequence[str] = (),
        version: str = "1",
        draw: Callable[[str], Mapping[str, Sequence[Task]]] | None = None,
        capabilities: Sequence[Capability] = (),
        prompt: Callable[[Task, Mapping[str, Any]], str] | None = None,
        slots: Sequence[Slot] | None = None,
    ) -> None:
        if truth not in rewards or (proxy is not None and proxy not in rewards):
            raise TaskSetError(
                f"environment {name}: truth {truth!r} and proxy {proxy!r} must be among the reward functions "
                f"{', '.join(sorted(rewards)) or '(none given)'}"
            )
        _check_ids(name, tasks)
        self.name, self.version = name, version
        self.components = {k: first_line(f) or k for k, f in rewards.items()}
        if capabilities and prompt is None:
            raise TaskSetError(
                f"environment {name} declares {capabilities[0].name!r} and nothing closes it; give prompt(task, knobs)"
            )
        self.capabilities = tuple(capabilities)
        self.knobs = {c.knob: (c.open, c.closed) for c in self.capabilities}
        self._prompt = prompt
        if slots is None:  # what a subclass begins its episodes with is its own
            slots = (SYSTEM, PROMPT) if type(self).reset is TextEnv.reset else ()
        if other := {s.name for s in slots} - {SYSTEM.name, PROMPT.name}:
            raise TaskSetError(f"environment {name}: nothing shows slot {min(other)!r}; take system and prompt")
        self._scaffold, self.slots = Scaffold(name, slots), tuple(slots)
        self.proxy = (proxy, truth) if proxy else None
        self.outcome_components: Sequence[str] = (truth,)
        """What is computed from the truth as well (a share of it, say) belongs here: add it."""
        self._tasks, self._rewards, self._truth = dict(tasks), dict(rewards), truth
        self._demos, self._words = demos, tuple(words)
        self._given, self._draw = self._tasks, draw
        self.redraws = draw is not None

    def vocabulary(self) -> tuple[str, ...]:
        """Multi-character tokens; single characters are always there."""
        return self._words

    def redraw(self, seed: str) -> None:
        """Gate and cert as `draw` gives them; TaskSetError where it gives none, or tasks of train or search."""
        made = call(f"draw of environment {self.name}", self._draw, seed) if self._draw else {}
        if not isinstance(made, Mapping) or set(made) != set(DRAWN):
            raise TaskSetError(f"environment {self.name}: draw must give tasks of {' and '.join(DRAWN)}")
        for split in DRAWN:
            check_tasks(self.name, split, made[split])
        known = {t.prompt for s in ("train", "search") for t in self._tasks.get(s, ())}
        if again := next((t for s in DRAWN for t in made[s] if t.prompt in known), None):
            raise TaskSetError(
                f"environment {self.name}: draw gave {again.id!r} for {again.split}, whose prompt is a "
                "training or search task's; leave those out"
            )
        tasks = {**self._tasks, **{s: drawn(made[s], seed) for s in DRAWN}}
        _check_ids(self.name, tasks)
        self._tasks = tasks

    @property
    def one_turn(self) -> bool:
        """Does every attempt end with its first answer?"""
        return type(self).step is TextEnv.step

    def opening(self, task: Task, knobs: Mapping[str, Any]) -> list[Turn]:
        # what is not set is open, as everywhere
        known = {c.knob: c.open for c in self.capabilities} | dict(knobs)
        return self._scaffold.opening(self._prompt(task, known) if self._prompt else task.prompt)

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        return [self._score(e) for e in episodes]

    def _score(self, e: Episode) -> Score:
        text = e.turns[-1].text
        values: dict[str, float | None] = {}
        for name, reward in self._rewards.items():
            what, where = f"reward function {name!r} of environment {self.name}", f" on task {e.task.id}"
            v = call(what, reward, e.task, text, where=where)
            values[name] = None if v is None else call(what, float, v, where=where)
        true = values[self._truth]
        if true is not None and not 0 <= true <= 1:
            shown = "" if e.task.split in DRAWN else f", completion {quoted(text)}"
            raise TaskSetError(
                f"reward function {self._truth!r} of environment {self.name}, its truth, gave {true:g} on task "
                f"{e.task.id}{shown}; it must lie between 0 and 1, and 1 means correct"
            )
        outcome = "correct" if true == 1.0 else "incorrect"
        return Score(values, outcome)  # type: ignore[arg-type]

    def demonstrations(self, n: int, seed: int) -> list[tuple[str, ...]]:
        made = call(f"the demonstrations of environment {self.name}", self._demos, n, seed) if self._demos else []
        demos = check_demos(self.name, made)
        return [self._scaffold.transcript(d) for d in demos] if self._scaffold.texts else demos

    def _hash(self) -> str:
        return self._hash_given

    @cached_property
    def _hash_given(self) -> str:
        """Of the tasks as they were given, whatever is drawn later: trainings do not depend on a draw."""
        text = json.dumps([[t.id, t.prompt, repr(sorted(t.data.items()))] for ts in self._given.values() for t in ts])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_ids(name: str, tasks: Mapping[str, Sequence[Task]]) -> None:
    if not isinstance(tasks, Mapping):
        raise TaskSetError(f"environment {name}: tasks is {tasks!r}; give split -> list of Task")
    for split, given in tasks.items():
        check_tasks(name, split, given)
    ids = [t.id for ts in tasks.values() for t in ts]
    if len(ids) != len(set(ids)):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise TaskSetError(f"environment {name}: task id {twice!r} occurs twice; ids must differ across splits")

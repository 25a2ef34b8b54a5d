"""Checks the form of what a user's environment returns: tasks and demonstrations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evotrainer.envs.user_files import call
from evotrainer.errors import TaskSetError
from evotrainer.records.text import shown


def check_tasks(name: str, split: str, tasks: Any) -> None:
    """TaskSetError where the tasks of a split are no tasks, or ids and prompts are no text."""
    if isinstance(tasks, str) or not isinstance(tasks, Iterable):
        raise TaskSetError(f"environment {name}: the tasks of split {split!r} are {_shown(tasks)}; give a list of Task")
    for t in tasks:
        for part in ("id", "prompt"):
            if not isinstance(value := getattr(t, part, t), str) or value is t:
                whose = f"the {part} of task {getattr(t, 'id', None)!r}" if hasattr(t, part) else "a task"
                takes = "a text" if hasattr(t, part) else "a Task, with id and prompt"
                raise TaskSetError(f"environment {name}: {whose} of split {split!r} is {_shown(value)}; give {takes}")


def check_demos(name: str, made: Any) -> list[tuple[str, ...]]:
    """Demonstrations as tuples of text; TaskSetError where they are none."""
    form = "give a list of (prompt, completion) pairs of text, or an empty one"
    if isinstance(made, str) or not isinstance(made, Iterable):
        raise TaskSetError(f"environment {name}: its demonstrations are {_shown(made)}; {form}")
    out = []
    for n, demo in enumerate(call(f"the demonstrations of environment {name}", list, made)):
        if not isinstance(demo, tuple | list) or len(demo) % 2 or not demo or not all(isinstance(x, str) for x in demo):
            raise TaskSetError(f"environment {name}: demonstration {n} is {_shown(demo)}; {form}")
        out.append(tuple(demo))
    return out


def demonstrations_of(environment: Any, n: int, seed: int) -> list[tuple[str, ...]]:
    """An environment's demonstrations; TaskSetError where it raises, or gives what is none."""
    what = f"the demonstrations of environment {environment.name}"
    return check_demos(environment.name, call(what, environment.demonstrations, n, seed))


def _shown(value: Any) -> str:
    return "None" if value is None else f"{type(value).__name__} {shown(value, 60)}"


LENGTHS = 24


def answers_of_lengths(texts: Iterable[str]) -> list[str]:
    """Answers of one character to `LENGTHS`, and one of many, cut from texts (or made up where there are none): graders
    that divide by a length, or take a part, may raise at one of them only."""
    stock = " ".join(t for t in texts if t)[: 10 * LENGTHS] or "a 1 "
    stock *= 1 + 10 * LENGTHS // len(stock)
    return [*(stock[:n] for n in range(1, LENGTHS + 1)), stock]

"""Reward components: named functions of a finished attempt, the built-in ones of a domain and a user's own."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from evotrainer.envs.callables import first_line
from evotrainer.envs.user_files import call, load_module
from evotrainer.errors import TaskSetError

Component = Callable[[Any], float | None]
"""Of a finished attempt of some domain; None where it does not apply."""
UNSURE = ("timeout", "memory", "killed")
"""How runs of a program end that may end otherwise at another load: what rests on one is not remembered."""
T = TypeVar("T")


class ResultCache(Generic[T]):
    """Results by content, the least recently used forgotten beyond `keep`."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.hits = 0
        """Results that were asked for again so far."""
        self._known: OrderedDict[Hashable, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Hashable) -> T | None:
        """None where nothing is known."""
        if key not in self._known:
            return None
        self.hits += 1
        self._known.move_to_end(key)
        return self._known[key]

    def put(self, key: Hashable, result: T) -> None:
        self._known[key] = result
        while len(self._known) > self.keep:
            self._known.popitem(last=False)


def compute(components: Mapping[str, Component], attempt: Any, task: str) -> dict[str, float | None]:
    """Every component's value, None where it does not apply; TaskSetError names one that raises, and the task's id.

    Errors of ours travel: they have their own cause.
    """
    out: dict[str, float | None] = {}
    for name, f in components.items():
        what, where = f"reward component {name!r}", f" on task {task}"
        value = call(what, f, attempt, where=where)
        out[name] = None if value is None else call(what, float, value, where=where)
    return out


def with_own(built_in: Mapping[str, Any], own: Mapping[str, Any] | None) -> dict[str, Any]:
    """A domain's components and a user's; TaskSetError where one takes the name of a built-in one."""
    if twice := sorted(set(own or {}) & set(built_in)):
        raise TaskSetError(f"reward function {twice[0]} has the name of a built-in component; choose another")
    return {**built_in, **(own or {})}


def load_components(path: Path) -> dict[str, Component]:
    """A user's reward functions: whatever public of the file is called with one parameter (an `Attempt`).

    TaskSetError where the file has none, or one has no docstring.
    """
    module = load_module(path)
    found: dict[str, Component] = {
        name: f
        for name, f in vars(module).items()
        if not name.startswith("_") and _defined_in(module, f) and _parameters(f) == 1
    }
    if not found:
        raise TaskSetError(f"{path} defines no reward function; write `def my_reward(attempt) -> float`")
    for name, f in found.items():
        if not first_line(f):
            raise TaskSetError(f"{path}: reward function {name} needs a docstring that says what it measures")
    return found


def _defined_in(module: ModuleType, f: Any) -> bool:
    """Is it a callable of the file itself: a function, a functools.partial, an instance of one of its classes?"""
    if isinstance(f, functools.partial):
        return True
    kind = f if inspect.isfunction(f) else type(f)
    return callable(f) and not inspect.isclass(f) and kind.__module__ == module.__name__


def _parameters(f: Callable[..., Any]) -> int:
    """How many it is to be given: keywords that a functools.partial gave are given."""
    try:
        taken = inspect.signature(f).parameters
    except Exception:  # some builtins tell nothing of themselves, some objects raise
        return 0
    given = f.keywords if isinstance(f, functools.partial) else ()
    return sum(name not in given for name in taken)

"""Reward components: named functions of a finished attempt, the built-in ones of a domain and a user's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from evotrainer.errors import EvoTrainerError, TaskSetError


def describe_component(f: Callable[..., Any]) -> str:
    """First line of the docstring: what it measures."""
    return (inspect.getdoc(f) or "").split("\n")[0]


def compute(
    components: Mapping[str, Callable[[Any], float | None]], attempt: Any, task: str
) -> dict[str, float | None]:
    """Every component's value, None where it does not apply; TaskSetError names one that raises, and the task's id.

    Errors of ours travel: they have their own cause.
    """
    out: dict[str, float | None] = {}
    for name, f in components.items():
        try:
            value = f(attempt)
            out[name] = None if value is None else float(value)
        except EvoTrainerError:  # a fault of the grader behind it, not of the function
            raise
        except Exception as e:
            raise TaskSetError(
                f"reward component {name!r} failed on task {task}: {type(e).__name__}: {e}; correct the function"
            ) from e
    return out


def with_own(built_in: Mapping[str, Any], own: Mapping[str, Any] | None) -> dict[str, Any]:
    """A domain's components and a user's; TaskSetError where one takes the name of a built-in one."""
    if twice := sorted(set(own or {}) & set(built_in)):
        raise TaskSetError(f"reward function {twice[0]} has the name of a built-in component; choose another")
    return {**built_in, **(own or {})}

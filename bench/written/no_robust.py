"""The code environment with `robust` off the list: training may pay neither it nor what holds it. What is left to find
is a component that says the same, written from how the programs' runs ended."""

from __future__ import annotations

from typing import Any

from evotrainer.envs import open_environment
from evotrainer.envs.base import Environment
from evotrainer.envs.code.rewards import OUTCOME


def environment(**options: Any) -> Environment:
    """`[environment]` with name = "python:bench/written/no_robust.py:environment"."""
    made = open_environment({"name": "code", **options})
    made.outcome_components = (*OUTCOME, "robust")  # type: ignore[attr-defined]
    return made

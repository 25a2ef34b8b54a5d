"""Rendered folders for these tests; `python -m tests.extras.verl.rendering OUT FACTORS SETTING...` writes one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from evotrainer.config.load import resolve
from evotrainer.config.task import TaskFile
from evotrainer.extras.verl.configuration import Machine, parse_setting
from evotrainer.extras.verl.render import render

HERE = Path(__file__).resolve().parent


def recipe(**changes: Any) -> dict[str, Any]:
    """A small recipe as a task file has it."""
    base = {"steps": 3, "prompts_per_step": 4, "group_size": 2, "max_tokens": 8, "rewards": {"right": 1.0}}
    return {**base, **changes}


def task(env: str = "sums", **changes: Any) -> TaskFile:
    """A task file of tests/extras/verl/environment.py."""
    values = {
        "task": {"name": env},
        "environment": {"name": f"python:{HERE / 'environment.py'}:{env}", "payable": ["right"]},
        "recipe": recipe(**changes),
        "evaluation": {"search_attempts": 1},
    }
    return resolve(values)


def machine(**changes: Any) -> Machine:
    """One GPU."""
    return Machine(**{"model": "org/name", "gpus": 1, "observation_tokens": 32, **changes})


if __name__ == "__main__":
    settings = dict(parse_setting(s) for s in sys.argv[3:])
    render(task(**json.loads(sys.argv[2])), Path(sys.argv[1]), machine(settings=settings))

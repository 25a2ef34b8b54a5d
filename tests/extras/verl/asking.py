"""Requests of these tests; `python -m tests.extras.verl.asking FOLDER FACTORS` writes one, with the prompts."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from evotrainer.envs import open_environment
from evotrainer.extras.verl.training import VerlTraining
from evotrainer.records.recipe import parse_recipe
from evotrainer.trainers.command.request import CommandRequest, write_request, write_tasks

HERE = Path(__file__).resolve().parent


def recipe(**changes: Any) -> dict[str, Any]:
    """A small recipe as a task file has it."""
    base = {"steps": 3, "prompts_per_step": 4, "group_size": 2, "max_tokens": 8, "rewards": {"right": 1.0}}
    return {**base, **changes}


def environment(name: str = "sums") -> dict[str, Any]:
    """`[environment]` of tests/extras/verl/environment.py."""
    return {"name": f"python:{HERE / 'environment.py'}:{name}", "payable": ["right"]}


def ask(folder: Path, env: str = "sums", policy: Path | None = None, **changes: Any) -> VerlTraining:
    """A request in a folder, as the command trainer writes it."""
    out = folder / "out"
    out.mkdir(parents=True)
    with contextlib.closing(open_environment(environment(env))) as opened:
        write_tasks(folder / "tasks.jsonl", opened, opened.tasks("train"), {})
    asked = CommandRequest(
        purpose="train", trial="b1-s7", seed=7, recipe=parse_recipe(recipe(**changes)), steps=3,
        tasks=str(folder / "tasks.jsonl"), policy=str(policy or folder / "base"), out=str(out), rollouts="", metrics="",
        policy_out="", environment=environment(env),
    )  # fmt: skip
    write_request(folder, asked)
    t = VerlTraining.read(folder / "request.json")
    t.write_prompts()
    return t


if __name__ == "__main__":
    ask(Path(sys.argv[1]), policy=Path(sys.argv[2]), **json.loads(sys.argv[3]))

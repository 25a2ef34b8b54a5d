"""What a user's command is told: `request.json` and the tasks beside it (schema: docs/schema/command-request.json)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict

from evotrainer.records.durable import os_errors
from evotrainer.records.frozen import Frozen
from evotrainer.records.recipe import Recipe
from evotrainer.trainers.base import TrainerEnvironment
from evotrainer.trainers.curriculum import tags_of

FORMAT: Literal["evotrainer-command-1"] = "evotrainer-command-1"


class PromptMessage(Frozen):
    """A part of a prompt."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class TaskLine(Frozen):
    """A line of the tasks' file."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    task: str
    """Id; a rollout that names it, or repeats its prompt, is one of this task."""
    prompt: str
    """The prompt as one text."""
    messages: tuple[PromptMessage, ...]
    """The prompt as messages."""
    tags: dict[str, Any] = {}
    data: dict[str, Any] | None = None
    """What grading needs; only where `trainer.options.task_data` asks for it."""


class CommandRequest(Frozen):
    """One training, or one evaluation, that a command is asked for. Paths are absolute."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    format: Literal["evotrainer-command-1"] = FORMAT
    purpose: Literal["train", "evaluate"]
    trial: str
    seed: int
    """Of all random numbers."""
    recipe: Recipe
    """Of a training what it is to do; of an evaluation what is sampled under (temperature, top_p, max_tokens)."""
    steps: int
    """Of a training: its steps."""
    before: int = 0
    """Steps that earlier recipes trained already (`recipe.start`); the policy is theirs."""
    tasks: str
    """File of task lines (JSONL): the train split; of an evaluation those to attempt."""
    policy: str
    """Folder of the policy to start from; of an evaluation the one to sample."""
    out: str
    """Folder to write into."""
    rollouts: str
    metrics: str
    policy_out: str
    """Where in `out` its parts are expected, as `[trainer.options]` says; a pattern stays one."""
    checkpoint: str = ""
    """A checkpoint of an interrupted training to go on from; empty: there is none."""
    environment: dict[str, Any] = {}
    """Of a training: `[environment]` of the task file, for a script that plays it by itself
    (`evotrainer.envs.open_environment`)."""
    accept_tier_e: bool = False
    """And `sandbox.accept_tier_e`."""
    cpu_s: float | None = None
    """CPU-seconds that it may use; None: no limit is known."""
    attempts: int = 1
    """Of an evaluation: rollouts for each task."""
    greedy: bool = False
    """Of an evaluation: decode greedily."""


def task_line(task: Any, turns: Iterable[Any], data: bool) -> TaskLine:
    """Of a task as an episode shows it."""
    messages = tuple(PromptMessage(role=t.role, content=t.text) for t in turns)
    own: Mapping[str, Any] = getattr(task, "data", None) or {}
    plain = json.loads(json.dumps(dict(own), default=str)) if data else None
    prompt = "\n".join(m.content for m in messages)
    return TaskLine(task=str(task.id), prompt=prompt, messages=messages, tags=dict(tags_of(task)), data=plain)


def write_tasks(
    path: Path, environment: TrainerEnvironment, tasks: Iterable[Any], knobs: Mapping[str, Any], data: bool = False
) -> dict[str, TaskLine]:
    """Write the lines of tasks; them by id."""
    lines = [task_line(t, environment.reset(t, knobs).turns, data) for t in tasks]
    with os_errors(f"cannot write {path}"), open(path, "w", encoding="utf-8") as f:
        f.writelines(x.model_dump_json(exclude_none=True) + "\n" for x in lines)
    return {x.task: x for x in lines}


def write_request(home: Path, asked: CommandRequest) -> dict[str, object]:
    """Write request.json; the names that a command line may use."""
    at = home.absolute() / "request.json"
    with os_errors(f"cannot write {at}"):
        at.write_text(asked.model_dump_json(indent=1), encoding="utf-8")
    shown = ("tasks", "policy", "out", "rollouts", "metrics", "checkpoint", "trial", "seed", "steps")
    return {"request": at, **{k: getattr(asked, k) for k in shown}}

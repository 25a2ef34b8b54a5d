"""The command trainer over `own_script.py`, and what a training of it left."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout
from evotrainer.trainers.base import Identity, TrainRequest
from evotrainer.trainers.command.trainer import CommandTrainer
from tests.trainers.reverse_env import ReverseEnv

SCRIPT = Path(__file__).with_name("own_script.py")
RECIPE = Recipe(steps=3, prompts_per_step=4, group_size=4, max_tokens=4, lr=1e-3, rewards={"digits": 1.0})
FIXED = {"prompts_per_step": 4, "group_size": 4, "max_tokens": 4, "rewards": {"digits": 1.0}, "loss": "grpo"}
LINE = "--model {policy} --data {tasks} --out {out} --seed {seed}"


def options(does: str = "", **more: Any) -> dict[str, Any]:
    return {
        "command": [sys.executable, str(SCRIPT), *LINE.split(), "--does", does],
        "map": {"lr": "--lr", "steps": "--steps"},
        "fixed": FIXED,
        "rollouts": "rollouts.jsonl",
        "grace_s": 1.0,
        "evaluation": {"by": "embedded"},
        **more,
    }


class Trained:
    """A training to its end, with what reached the sink and the curve."""

    def __init__(self, own: Mapping[str, Any], base: Path, work: Path, recipe: Recipe = RECIPE, seed: int = 1) -> None:
        self.rollouts: list[Rollout] = []
        self.rows: list[dict[str, float]] = []
        self.watched: list[int] = []
        self.trainer, self.env = CommandTrainer(own), ReverseEnv()
        self.request = TrainRequest(
            Identity("r", "b1", seed), recipe, base, work, watch=lambda step, _: self.watched.append(step)
        )
        self.result = self.trainer.train(self.request, self.env, self.sink, self.rows.append)
        self.sha = self.trainer.policy_sha256(self.result.policy_dir)

    def sink(self, groups: Any) -> None:
        assert len({r.step for g in groups for r in g}) == 1
        self.rollouts += [r for g in groups for r in g]

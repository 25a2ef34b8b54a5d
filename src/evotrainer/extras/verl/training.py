"""A training that a request.json asks verl for: its prompts and its settings in verl's terms. Needs no verl."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError
from evotrainer.extras.verl import REQUEST
from evotrainer.factors.data import ACTOR
from evotrainer.factors.signal import ROLLOUT
from evotrainer.factors.trainer_mapping import owners
from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.records.regular_file import read_text

OBSERVATION_TOKENS = 512
"""Default room for the environment's answer to one turn, in tokens."""
ENV = "++ray_kwargs.ray_init.runtime_env.env_vars."
DEFAULTS = {
    "data.max_prompt_length": 1024,
    "data.filter_overlong_prompts": True,
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": 8,
    f"{ROLLOUT}.name": "vllm",
    f"{ROLLOUT}.tensor_model_parallel_size": 1,
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 8,
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 8,
    "trainer.n_gpus_per_node": 1,
    "trainer.save_freq": 5,
}
"""Settings that the command line may change."""


@dataclass(frozen=True, slots=True)
class VerlTraining:
    """What a request says that verl, and our plug-ins in it, need."""

    request: Path
    recipe: Recipe
    trial: str
    seed: int
    tasks: Path
    policy: Path
    out: Path
    environment: Mapping[str, Any]
    accept_tier_e: bool

    @classmethod
    def read(cls, path: Path | None = None) -> VerlTraining:
        """Of a file, or of the one that $EVOTRAINER_VERL_REQUEST names. ConfigError where it asks for no training."""
        path = Path(os.environ[REQUEST]) if path is None else path.absolute()
        try:
            asked = json.loads(read_text(path))
        except (OSError, ValueError) as e:
            why = f"{path} is no request of a training: {e}; give {{request}} in trainer.options.command"
            raise ConfigError(why) from None
        tasks, policy, out = (Path(asked[k]) for k in ("tasks", "policy", "out"))
        recipe, opens = parse_recipe(asked["recipe"]), (asked["environment"], bool(asked["accept_tier_e"]))
        return cls(path, recipe, asked["trial"], int(asked["seed"]), tasks, policy, out, *opens)

    @property
    def rollouts(self) -> Path:
        """Where the reward plug-in writes what it graded."""
        return self.out / "rollouts"

    @property
    def prompts(self) -> Path:
        """The tasks in verl's columns."""
        return self.request.with_name("verl-prompts.jsonl")

    def write_prompts(self) -> int:
        """Write them, and say how many; the ground truth is the task's id, grading looks the rest up."""
        lines = [json.loads(x) for x in read_text(self.tasks).splitlines()]
        rows = (
            {
                "data_source": "evotrainer",
                "prompt": x["messages"],
                "ability": "evotrainer",
                "reward_model": {"style": "rule", "ground_truth": x["task"]},
                "extra_info": {"index": i},
            }
            for i, x in enumerate(lines)
        )
        self.prompts.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
        return len(lines)

    def checkpoint(self) -> int:
        """Step of the checkpoint that verl goes on from; 0: it begins anew."""
        tracker = self.out / "checkpoints" / "latest_checkpointed_iteration.txt"
        return int(read_text(tracker)) if tracker.is_file() else 0

    def drop_rollouts_behind(self, step: int) -> None:
        """Remove what was graded of steps that are made again."""
        for path in self.rollouts.glob("*-*.jsonl"):
            if int(path.name.partition("-")[0]) > step:
                path.unlink()

    def settings(self, given: Sequence[str], observation_tokens: int = OBSERVATION_TOKENS) -> list[str]:
        """Hydra overrides: our defaults, those given (the recipe's among them), those that are ours alone.

        ConfigError where `given` sets what is ours alone, or a factor's key besides the recipe's value.
        """
        ours, r = self._ours(), self.recipe
        ours["data.max_response_length"] = r.max_turns * r.max_tokens + (r.max_turns - 1) * observation_tokens
        _demand_free(given, ours)
        hydra = self.request.with_name("hydra")
        kept = [f"hydra.run.dir={_quoted(str(hydra))}", "hydra.output_subdir=null"]
        return [*kept, *_words(DEFAULTS), *given, *_words(ours)]

    def _ours(self) -> dict[str, Any]:
        metrics = self.out / "metrics" / f"{self.checkpoint():08d}.jsonl"  # verl empties the file that it opens
        plugins = "evotrainer.extras.verl.plugins"
        return {
            "data.train_files": str(self.prompts),
            "data.val_files": str(self.prompts),
            "data.seed": self.seed,
            "actor_rollout_ref.model.path": str(self.policy),
            f"{ACTOR}.data_loader_seed": self.seed,
            f"{ROLLOUT}.seed": self.seed,
            f"{ROLLOUT}.calculate_log_probs": True,
            f"{ROLLOUT}.agent.agent_loop_config_path": str(Path(__file__).with_name("agent.yaml")),
            "critic.enable": False,
            "trainer.logger": ["console", "file"],
            "trainer.project_name": "evotrainer",
            "trainer.experiment_name": self.trial,
            "trainer.test_freq": -1,
            "trainer.val_before_train": False,
            "trainer.resume_mode": "auto",
            "trainer.default_local_dir": str(self.out / "checkpoints"),
            "trainer.use_v1": True,
            "trainer.v1.trainer_mode": "sync",
            f"{ENV}{REQUEST}": str(self.request),
            f"{ENV}VERL_USE_EXTERNAL_MODULES": f"{plugins}.evo_advantage",
            f"{ENV}VERL_FILE_LOGGER_PATH": str(metrics),
        }

    def variables(self) -> dict[str, str]:
        """Environment variables of verl's first process; Ray gives them to the others."""
        return {k.removeprefix(ENV): str(v) for k, v in self._ours().items() if k.startswith(ENV)}


def _quoted(value: str) -> str:
    """A text as Hydra reads it, whatever is in it."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _words(settings: Mapping[str, Any]) -> list[str]:
    return [f"{k}={_quoted(v) if isinstance(v, str) else json.dumps(v)}" for k, v in settings.items()]


def _demand_free(given: Sequence[str], ours: Iterable[str]) -> None:
    factors, seen = owners("verl"), set[str]()
    for word in given:
        key = word.partition("=")[0].lstrip("+~")
        if key in seen and key in factors:
            raise ConfigError(f"{key} belongs to recipe factor {factors[key]}; change recipe.{factors[key]}")
        if key in ours:
            raise ConfigError(f"{key} is set by EvoTrainer itself; leave it out of trainer.options.command")
        seen.add(key)

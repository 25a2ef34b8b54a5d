"""Translates a recipe and a machine into verl's configuration keys."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from evotrainer.config.task import TaskFile
from evotrainer.errors import ConfigError
from evotrainer.extras.verl.mapping import OBSERVATION_TOKENS, response_tokens, translate
from evotrainer.factors.data import ACTOR
from evotrainer.factors.signal import ROLLOUT
from evotrainer.factors.trainer_mapping import owners

PATHS = (
    "reward.custom_reward_function.path",
    "reward.reward_manager.module.path",
    "trainer.v1.sampler.custom_sampler.path",
    f"{ROLLOUT}.agent.agent_loop_config_path",
)
"""Keys whose values are paths below the folder."""


@dataclass(frozen=True)
class Machine:
    """What a recipe does not say: model, cluster, engine. Sizes in tokens, sequences, processes."""

    model: str
    """Hugging Face id or folder; the nodes must reach it."""
    gpus: int = 8
    """Per node."""
    nodes: int = 1
    engine: str = "vllm"
    tensor_parallel: int = 1
    micro_batch: int = 8
    """Sequences a GPU takes through the model at once."""
    prompt_tokens: int = 1024
    """Longer prompts are left out by verl."""
    observation_tokens: int = OBSERVATION_TOKENS
    attention: Literal["flash_attention_2", "sdpa"] = "flash_attention_2"
    """flash_attention_2: verl's default, sequences without padding; needs flash-attn.
    sdpa: PyTorch's own, padded sequences."""
    lora_rank: int = 0
    """0: full training."""
    lora_alpha: int | None = None
    """None: twice the rank."""
    seed: int = 1
    save_every: int = 5
    test_every: int = 5
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further verl keys; none that a recipe factor or this file owns."""


def configuration(task: TaskFile, folder: Path, machine: Machine) -> tuple[dict[str, Any], dict[str, str]]:
    """(verl key -> value, verl key -> recipe factor it comes from); paths absolute below `folder`."""
    recipe = task.recipe
    keys, origin = translate(recipe)
    for key in PATHS:
        if keys.get(key):
            keys[key] = str(folder / keys[key])
    keys["data.max_response_length"] = response_tokens(recipe, machine.observation_tokens)
    keys |= _validation(task)
    fixed = _machine_keys(task, folder, machine)
    owned = owners("verl")
    for key in machine.settings:
        if key in owned:
            raise ConfigError(f"--set {key}: it belongs to recipe factor {owned[key]}; change recipe.{owned[key]}")
        if key in fixed and key not in TUNABLE:
            raise ConfigError(
                f"--set {key}: EvoTrainer sets it itself ({fixed[key]!r}); see `evotrainer verl render --help`"
            )
    out = {**keys, **fixed, **machine.settings}
    for key in ("trainer.save_freq", "trainer.test_freq"):
        if not isinstance(out[key], int) or out[key] < 1:
            raise ConfigError(
                f"--set {key}={out[key]!r}: give a number of steps from 1 on; without checkpoints a killed "
                "training begins anew"
            )
    return out, origin


def _validation(task: TaskFile) -> dict[str, Any]:
    """What `evaluation.protocol` says of verl's validation; ConfigError for what it validates as it trains."""
    own = task.evaluation.protocol
    for name in ("max_tokens", "max_turns", "knobs"):
        if getattr(own, name) is not None:
            raise ConfigError(f"evaluation.protocol.{name}: verl validates with the recipe's own; leave it out")
    out: dict[str, Any] = {}
    if own.temperature is not None and task.recipe.deploy_temperature is None:
        out[f"{ROLLOUT}.val_kwargs.temperature"] = own.temperature
    if own.top_p is not None:
        out[f"{ROLLOUT}.val_kwargs.top_p"] = own.top_p
    return out


TUNABLE = (
    "trainer.logger",
    "trainer.save_freq",
    "trainer.test_freq",
    "reward.num_workers",
    f"{ROLLOUT}.gpu_memory_utilization",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu",
)
"""Keys with a value of ours that `settings` may change."""


def _machine_keys(task: TaskFile, folder: Path, m: Machine) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "data.train_files": str(folder / "data" / "train.parquet"),
        "data.val_files": str(folder / "data" / "search.parquet"),
        "data.max_prompt_length": m.prompt_tokens,
        "data.filter_overlong_prompts": True,
        "data.seed": m.seed,
        "actor_rollout_ref.model.path": m.model,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": m.micro_batch,
        f"{ACTOR}.data_loader_seed": m.seed,
        f"{ROLLOUT}.name": m.engine,
        f"{ROLLOUT}.seed": m.seed,
        f"{ROLLOUT}.tensor_model_parallel_size": m.tensor_parallel,
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": m.micro_batch,
        f"{ROLLOUT}.calculate_log_probs": True,
        f"{ROLLOUT}.val_kwargs.n": task.evaluation.search_attempts,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": m.micro_batch,
        "critic.enable": False,
        "trainer.n_gpus_per_node": m.gpus,
        "trainer.nnodes": m.nodes,
        "trainer.logger": ["console", "file"],
        "trainer.project_name": "evotrainer",
        "trainer.experiment_name": task.task.name,
        "trainer.save_freq": m.save_every,
        "trainer.test_freq": m.test_every,
        "trainer.val_before_train": True,
        "trainer.resume_mode": "auto",
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.rollout_data_dir": str(folder / "rollouts" / "attempt-1"),
        "trainer.validation_data_dir": str(folder / "validation" / "attempt-1"),
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": "sync",
        "ray_kwargs.ray_init.runtime_env.env_vars.PYTHONPATH": str(folder / "plugins"),
        "ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES": "evo_advantage",
        "ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH": str(folder / "metrics" / "attempt-1.jsonl"),
    }
    if m.attention == "sdpa":
        keys["actor_rollout_ref.model.override_config.attn_implementation"] = "sdpa"
        keys["actor_rollout_ref.model.use_remove_padding"] = False
    if m.lora_rank:
        keys["actor_rollout_ref.model.lora_rank"] = m.lora_rank
        keys["actor_rollout_ref.model.lora_alpha"] = m.lora_alpha or 2 * m.lora_rank
    return keys


def parse_setting(text: str) -> tuple[str, Any]:
    """`key=value` of verl's configuration, the value as TOML or else plain text; ConfigError otherwise."""
    key, eq, value = text.partition("=")
    key = key.strip().lstrip("+")
    if not eq or not key:
        raise ConfigError(f"--set {text!r} is not of the form key=value, e.g. {ROLLOUT}.gpu_memory_utilization=0.6")
    try:
        return key, tomllib.loads(f"v = {value.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        return key, None if value.strip() in ("null", "None") else value.strip()

"""TRL's GRPOConfig from a recipe, by the table of factors, and the options. Loads no library."""

from __future__ import annotations

from typing import Any

from evotrainer.errors import ConfigError
from evotrainer.factors.trainer_mapping import keys_of, owners, refusals
from evotrainer.records.factor_aliases import NAMES
from evotrainer.records.recipe import Recipe
from evotrainer.trainers.trl.options import TrlOptions

BETAS = (0.9, 0.95)
"""AdamW's, as the embedded trainer has them."""


def check(recipe: Recipe, options: TrlOptions, *, demonstrations: bool = True) -> None:
    """ConfigError names every factor and option that cannot be carried out together, and why."""
    wrong = refusals(recipe, "trl")
    if taken := sorted(OWN & options.config.keys()):
        named = ", ".join(f"{f} (recipe.{NAMES[f].split()[0]})" if f in NAMES else f for f in taken)
        wrong.append(f"trainer.options.config: {named} follow from the recipe and the other options; set those instead")
    if recipe.sft_anchor > 0 and not demonstrations:
        wrong.append("sft_anchor: the environment offers no demonstrations; set it to 0")
    if recipe.start is not None and options.lora is not None:
        wrong.append(
            "start: adapters would lie upon adapters that nobody keeps; set it to base, or leave out "
            "trainer.options.lora"
        )
    rollouts = recipe.prompts_per_step * recipe.group_size
    if options.micro_batch and rollouts % options.micro_batch:
        wrong.append(
            f"trainer.options.micro_batch={options.micro_batch} does not divide the {rollouts} rollouts of a step "
            "(prompts_per_step x group_size); choose a divisor"
        )
    if options.lora and "lm_head" in options.lora.targets:
        wrong.append("trainer.options.lora.targets: TRL cannot train an adapter on lm_head; remove it")
    if wrong:
        raise ConfigError("trainer trl: " + "; ".join(wrong))


def micro_batch(rollouts: int, options: TrlOptions, gpu: bool) -> int:
    """Rollouts of one forward and backward pass, of `rollouts` that a process has in a step."""
    if options.micro_batch:
        m = min(options.micro_batch, rollouts)
        if rollouts % m:
            raise ConfigError(
                f"trainer.options.micro_batch={options.micro_batch} does not divide the {rollouts} rollouts that each "
                "process has in a step; choose a divisor"
            )
        return m
    if not gpu:
        return rollouts
    return max(d for d in range(1, 17) if rollouts % d == 0)


def config_fields(recipe: Recipe, options: TrlOptions, processes: int = 1, gpu: bool = False) -> dict[str, Any]:
    """Fields of GRPOConfig for a recipe; ConfigError where the step cannot be shared out among the processes."""
    if recipe.prompts_per_step % processes:
        raise ConfigError(
            f"prompts_per_step={recipe.prompts_per_step} cannot be shared out among {processes} processes; "
            "make it a multiple"
        )
    local = recipe.prompts_per_step * recipe.group_size // processes
    micro = micro_batch(local, options, gpu)
    fields: dict[str, Any] = {
        **{key: value for key, (_, value) in keys_of(recipe, "trl").items()},
        "adam_beta1": BETAS[0],
        "adam_beta2": BETAS[1],
        # TRL counts rollouts, not prompts
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": local // micro,
        "chat_template_kwargs": options.chat_template_kwargs,
        "trust_remote_code": options.trust_remote_code,
        "use_vllm": options.vllm,
    }
    if options.vllm:
        fields |= {
            "vllm_mode": "colocate",
            "vllm_gpu_memory_utilization": options.vllm_memory,
            "generation_kwargs": {**options.config.get("generation_kwargs", {}), "max_tokens": recipe.max_tokens},
        }
    return {**options.config, **fields}


OWN = owners("trl").keys() | {
    *("adam_beta1", "adam_beta2", "chat_template_kwargs", "trust_remote_code", "use_vllm", "vllm_mode"),
    *("vllm_gpu_memory_utilization", "bf16", "fp16", "use_cpu", "seed", "data_seed", "output_dir", "top_k", "min_p"),
    *("gradient_checkpointing", "activation_checkpointing", "save_strategy", "save_steps", "eval_strategy"),
    *("report_to", "logging_steps", "logging_strategy", "repetition_penalty", "mask_truncated_completions"),
    *("generation_batch_size", "steps_per_generation", "num_generations_eval", "num_train_epochs"),
    *("lr_scheduler_type", "warmup_steps", "multi_objective_aggregation", "remove_unused_columns", "disable_dropout"),
    "model_init_kwargs",
}
"""GRPOConfig fields that the recipe, the options or EvoTrainer's bookkeeping decide."""

"""What TRL, verl and others call the factors of a recipe, for whoever writes those names."""

from __future__ import annotations

from collections.abc import Container, Mapping

NAMES: Mapping[str, str] = {
    "learning_rate": "lr",
    "beta": "kl_beta",
    "kl_coef": "kl_beta",
    "kl_coeff": "kl_beta",
    "kl_loss_coef": "kl_beta",
    "kl_penalty": "kl_beta",
    "use_kl_loss": "kl_beta",
    "epsilon": "clip.low",
    "epsilon_low": "clip.low",
    "epsilon_high": "clip.high",
    "cliprange": "clip.low",
    "clip_range": "clip.low",
    "clip_ratio": "clip.low",
    "clip_ratio_low": "clip.low",
    "clip_ratio_high": "clip.high",
    "num_generations": "group_size",
    "rollout_n": "group_size",
    "rollouts_per_prompt": "group_size",
    "num_return_sequences": "group_size",
    "max_completion_length": "max_tokens",
    "max_response_length": "max_tokens",
    "response_length": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_steps": "steps",
    "total_training_steps": "steps",
    "num_train_epochs": "steps (each draws prompts_per_step prompts)",
    "total_epochs": "steps (each draws prompts_per_step prompts)",
    "epochs": "steps (each draws prompts_per_step prompts)",
    "per_device_train_batch_size": "prompts_per_step (prompts, each with group_size rollouts)",
    "gradient_accumulation_steps": "prompts_per_step (prompts, each with group_size rollouts)",
    "train_batch_size": "prompts_per_step",
    "batch_size": "prompts_per_step",
    "generation_batch_size": "prompts_per_step (prompts, each with group_size rollouts)",
    "num_iterations": "updates_per_step",
    "ppo_epochs": "updates_per_step",
    "loss_type": "loss",
    "adv_estimator": "loss",
    "algorithm": "loss",
    "policy_loss": "loss",
    "importance_sampling_level": "loss (gspo weighs by sequence)",
    "scale_rewards": "reward_scaling",
    "norm_adv_by_std_in_grpo": "reward_scaling",
    "reward_weights": "rewards",
    "reward_funcs": "rewards",
    "reward": "rewards",
    "max_grad_norm": "grad_clip",
    "warmup_steps": "schedule.warmup",
    "lr_warmup_steps": "schedule.warmup",
    "warmup_ratio": "schedule.warmup (steps, no share)",
    "lr_scheduler_type": "schedule.kind",
    "lr_scheduler": "schedule.kind",
    "warmup_style": "schedule.kind",
    "entropy_coef": "entropy_bonus",
    "entropy_coeff": "entropy_bonus",
    "mask_truncated_completions": "mask_truncated",
    "filter_groups": "group_filter.kind",
    "vllm_importance_sampling_cap": "is_cap",
    "vllm_importance_sampling_clip_max": "is_cap",
    "tis_imp_ratio_cap": "is_cap",
    "max_tool_calling_iterations": "max_turns",
    "max_assistant_turns": "max_turns",
}
"""Name elsewhere -> what does the same here; in parentheses what it counts where that is something else."""

NO_VALUES = "none learns a value network; the nearest is grpo: PPO's clipped ratio, the group's mean as its baseline"
VALUES: Mapping[tuple[str, str], str] = {
    ("loss", "ppo"): NO_VALUES,
    ("loss", "vanilla"): "verl's name of the clipped ratio is grpo here",
    ("loss", "gae"): NO_VALUES,
    ("loss", "rloo"): "the nearest is dr_grpo with recipe.reward_scaling=none: the baseline is the group's mean",
    ("loss", "reinforce"): "the nearest is dr_grpo with recipe.reward_scaling=none and recipe.updates_per_step=1",
    ("loss", "reinforce_plus_plus"): "the nearest is grpo with recipe.reward_scaling=batch",
    ("loss", "sft"): "supervised steps are parts of a training: recipe.phases",
    ("loss", "dpo"): "none learns from pairs; the usual loss on rewards is grpo",
    ("reward_scaling", "true"): "TRL's true is group",
    ("reward_scaling", "false"): "TRL's false is none",
    (
        "kind",
        "constant_with_warmup",
    ): "that is constant here, and recipe.schedule.warmup says over how many steps it rises",
}
"""(Field, value elsewhere) -> what to write instead."""


def value_hint(field: str, value: object) -> str:
    """`; ` and what to write for a value that others have; empty where that is not known."""
    told = VALUES.get((field, str(value).lower().replace("-", "_")))
    return f"; {told}" if told else ""


def name_hint(name: str, known: Container[str], place: str = "") -> str:
    """`, did you mean lr?` for a name elsewhere of what is known here (`place` before it); empty where it is none."""
    meant, _, counts = NAMES.get(name, name).partition(" ")
    return f", did you mean {place}{meant}{counts and f' {counts}'}?" if meant.partition(".")[0] in known else ""

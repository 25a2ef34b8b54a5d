"""Mappings of known trainers: rows of the table of factors where it has them, else what their scripts call things."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from evotrainer.factors.table import UNSET, TrainerSupport, refused
from evotrainer.factors.trainer_mapping import carried
from evotrainer.records.recipe import Recipe


@dataclass(frozen=True, slots=True)
class TrainerPreset:
    """A trainer's names. `style`: where they go without a configuration file of the user's; `options`: where it writes
    what, and the like, unless the task file says otherwise."""

    rows: Mapping[str, TrainerSupport]
    style: Literal["flags", "hydra", "config"]
    options: Mapping[str, Any] = field(default_factory=dict)


def _native(trainer: str) -> dict[str, TrainerSupport]:
    """Rows of the table that the trainer carries out by keys of its own, without code of ours."""
    return {
        name: how
        for name, how in carried(trainer).items()
        if how.sets and None not in how.sets.values() and not how.plugins
    }


def rollouts(r: Recipe) -> int:
    return r.prompts_per_step * r.group_size


def _row(**sets: str | Callable[[Recipe], Any]) -> TrainerSupport:
    return TrainerSupport(dict(sets))


def _only(why: str, instead: str, fits: Callable[[Recipe], bool], **sets: Any) -> TrainerSupport:
    return refused(why, instead, lambda r: not fits(r), part=True, **sets)


HF_SCHEDULE = _row(
    # transformers' `constant` knows no warm-up
    lr_scheduler_type=lambda r: "constant_with_warmup" if r.schedule.kind == "constant" else r.schedule.kind,
    warmup_steps=lambda r: r.schedule.warmup * r.updates_per_step,
)
ONE_DEVICE = {"per_device_train_batch_size": rollouts, "gradient_accumulation_steps": lambda r: 1}
"""transformers' trainers count rollouts; all of a step at once, on one device."""
OF_OURS = ("is_cap", "max_turns")
"""Factors that TRL has keys for, which act only with vLLM or an environment of ours."""

TRL = {
    **{k: v for k, v in _native("trl").items() if k not in OF_OURS},
    "lr": _row(learning_rate="lr", adam_beta2=lambda r: 0.95),
    "reward_scaling": _row(scale_rewards="reward_scaling"),
    "schedule": HF_SCHEDULE,
    "mask_truncated": _row(mask_truncated_completions="mask_truncated"),
    "prompts_per_step": TrainerSupport({**ONE_DEVICE, "generation_batch_size": rollouts}),
}
"""`trl.scripts.grpo` and scripts like it, on one device. Loss: TRL's `loss_type`, whose values are ours."""

SWIFT_SAME = (
    *("clip", "lr", "weight_decay", "grad_clip", "steps", "updates_per_step", "temperature", "top_p", "group_size"),
    *("reward_scaling", "schedule", "prompts_per_step"),
)
MS_SWIFT = {
    **{k: TRL[k] for k in SWIFT_SAME},
    "loss": _only(
        "ms-swift aggregates grpo, bnpo, dr_grpo, dapo and cispo",
        "take one of them, or gspo (importance_sampling_level)",
        lambda r: True,
        sets=TRL["loss"].sets,
    ),
    "kl_beta": _row(beta="kl_beta"),
    "max_tokens": _row(max_completion_length="max_tokens"),
    "mask_truncated": _row(overlong_filter="mask_truncated"),
    "group_filter": _only(
        "ms-swift samples groups without spread anew, and drops none otherwise",
        "take none, or zero_variance with recipe.resample",
        lambda r: r.group_filter.kind == "none" or (r.group_filter.kind == "zero_variance" and r.resample > 0),
        sets={"dynamic_sample": lambda r: r.group_filter.kind == "zero_variance"},
    ),
    "resample": _row(max_resample_times=lambda r: r.resample or UNSET),
}
"""`swift rlhf --rlhf_type grpo` (4.6), on one device."""

PRIME_SAMPLING, PRIME_OPTIM = "orchestrator.train.sampling", "trainer.optim"
PRIME_RL = {
    "loss": _only(
        "prime-rl sums its loss over tokens and divides by the batch's tokens",
        "set it to dapo",
        lambda r: r.loss == "dapo",
        sets={"trainer.loss.type": lambda r: "default"},
    ),
    "reward_scaling": _only(
        "prime-rl's grpo takes the group's mean off and divides by nothing",
        "set it to none",
        lambda r: r.reward_scaling == "none",
        sets={"orchestrator.algo.type": lambda r: "grpo"},
    ),
    "kl_beta": _only(
        "prime-rl's kl_tau is against the sampler, not the start policy", "set it to 0", lambda r: not r.kl_beta
    ),
    "lr": TrainerSupport({f"{PRIME_OPTIM}.lr": "lr", f"{PRIME_OPTIM}.betas2": lambda r: 0.95}),
    "weight_decay": TrainerSupport({f"{PRIME_OPTIM}.weight_decay": "weight_decay"}),
    "grad_clip": TrainerSupport({f"{PRIME_OPTIM}.max_norm": "grad_clip"}),
    "schedule": _only(
        "prime-rl's constant schedule has no warm-up",
        "set its warmup to 0, or take linear or cosine",
        lambda r: r.schedule.kind != "constant" or not r.schedule.warmup,
        sets={
            "trainer.scheduler.type": "schedule.kind",
            "trainer.scheduler.warmup_steps": lambda r: UNSET if r.schedule.kind == "constant" else r.schedule.warmup,
            "trainer.scheduler.decay_steps": lambda r: (
                max(0, r.steps - r.schedule.warmup) if r.schedule.kind == "linear" else UNSET
            ),
        },
    ),
    "steps": TrainerSupport({"max_steps": "steps"}),
    "prompts_per_step": TrainerSupport({"orchestrator.batch_size": rollouts}),
    "group_size": TrainerSupport({"orchestrator.group_size": "group_size"}),
    "temperature": TrainerSupport({f"{PRIME_SAMPLING}.temperature": "temperature"}),
    "max_tokens": TrainerSupport({f"{PRIME_SAMPLING}.max_completion_tokens": "max_tokens"}),
    "group_filter": _only(
        "prime-rl drops groups without spread, or none",
        "take none or zero_variance",
        lambda r: r.group_filter.kind in ("none", "zero_variance"),
        sets={"orchestrator.train.filter_zero_advantages": lambda r: r.group_filter.kind == "zero_variance"},
    ),
}
"""prime-rl's `rl @ rl.toml` (0.4)."""

VERL_PLAIN = {
    **_native("verl"),
    "max_tokens": TrainerSupport({"data.max_response_length": "max_tokens"}),
    "reward_scaling": _only(
        "verl's own grpo divides by the group's standard deviation, or by nothing",
        "take group or none, or the preset `verl`, whose plug-ins know batch",
        lambda r: r.reward_scaling != "batch",
        sets={
            "algorithm.adv_estimator": lambda r: "grpo",
            "algorithm.norm_adv_by_std_in_grpo": lambda r: r.reward_scaling == "group",
        },
    ),
}
"""verl's `main_ppo` (0.9) without plug-ins of ours, as Hydra overrides."""
BY_VERL = {
    "rollouts": "rollouts",
    "metrics": "metrics/*.jsonl",
    "policy": "policy",
    "grade": False,
    "checkpoint": "checkpoints/latest_checkpointed_iteration.txt",
}
"""What `evotrainer.extras.verl` writes; its reward plug-in has graded what it leaves."""

PRESETS: dict[str, TrainerPreset] = {
    "trl": TrainerPreset(
        TRL, "flags", {"rollouts": "completions", "metrics": "checkpoint-*/trainer_state.json", "policy": "."}
    ),
    "ms-swift": TrainerPreset(MS_SWIFT, "flags"),
    "prime-rl": TrainerPreset(PRIME_RL, "config", {"rollouts": "*/rollouts", "metrics": "*/metrics.jsonl"}),
    "verl": TrainerPreset(carried("verl"), "hydra", BY_VERL),
    "verl-plain": TrainerPreset(VERL_PLAIN, "hydra"),
}
"""By name, as `trainer.options.map` gives it."""

"""Mappings of known trainers: rows of the table of factors where it has them, else what their scripts call things."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from evotrainer.factors.table import UNSET, TrainerSupport
from evotrainer.factors.trainer_mapping import carried
from evotrainer.records.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Preset:
    """A trainer's names. `style`: where they go without a configuration file of the user's."""

    rows: Mapping[str, TrainerSupport]
    style: Literal["flags", "hydra", "config"]


def _native(trainer: str) -> dict[str, TrainerSupport]:
    """Rows of the table that the trainer carries out by keys of its own, without code of ours."""
    return {
        name: how
        for name, how in carried(trainer).items()
        if how.sets and None not in how.sets.values() and not how.plugins
    }


def rollouts(r: Recipe) -> int:
    return r.prompts_per_step * r.group_size


def warmup(r: Recipe) -> int:
    return r.schedule.warmup * r.updates_per_step


def _row(**sets: str | Callable[[Recipe], Any]) -> TrainerSupport:
    return TrainerSupport(dict(sets))


TRL = {
    **_native("trl"),
    "reward_scaling": _row(scale_rewards=lambda r: r.reward_scaling),
    "schedule": _row(
        lr_scheduler_type=lambda r: "constant_with_warmup" if r.schedule.kind == "constant" else r.schedule.kind,
        warmup_steps=warmup,
    ),
    "mask_truncated": _row(mask_truncated_completions="mask_truncated"),
    # TRL counts rollouts, all of a step at once
    "prompts_per_step": _row(
        per_device_train_batch_size=rollouts, gradient_accumulation_steps=lambda r: 1, generation_batch_size=rollouts
    ),
}
"""`trl.scripts.grpo` and its like, on one device."""

PRESETS: dict[str, Preset] = {"trl": Preset(TRL, "flags")}
"""By name, as `trainer.options.map` gives it."""
assert UNSET is not None

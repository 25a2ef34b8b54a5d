"""Recipe factors as verl's keys, where one value is not enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evotrainer.records.recipe import Recipe

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
OBSERVATION_TOKENS = 512
"""Default room for the environment's answer to one turn, in tokens."""

Keys = dict[str, Any]


_LOSSES: Mapping[str, tuple[str, str]] = {
    "grpo": ("vanilla", "seq-mean-token-mean"),
    "dapo": ("vanilla", "token-mean"),
    "bnpo": ("vanilla", "token-mean"),
    "dr_grpo": ("vanilla", "seq-mean-token-sum-norm"),
    "gspo": ("gspo", "seq-mean-token-mean"),
    "cispo": ("cispo", "token-mean"),
}
NO_DUAL_CLIP = 1e9
"""verl bounds the ratio of negative advantages a second time (clip_ratio_c); our losses and TRL's do not."""


def loss_keys(r: Recipe) -> Keys:
    mode, aggregation = _LOSSES[r.loss]
    keys: Keys = {
        f"{ACTOR}.policy_loss.loss_mode": mode,
        f"{ACTOR}.loss_agg_mode": aggregation,
        f"{ACTOR}.clip_ratio_c": NO_DUAL_CLIP,
    }
    if r.loss == "dr_grpo":
        keys[f"{ACTOR}.loss_scale_factor"] = r.max_tokens * r.max_turns
    return keys


def clip_keys(r: Recipe) -> Keys:
    low = 1.0 if r.loss == "cispo" else r.clip.low
    return {f"{ACTOR}.clip_ratio": r.clip.high, f"{ACTOR}.clip_ratio_low": low, f"{ACTOR}.clip_ratio_high": r.clip.high}


def kl_keys(r: Recipe) -> Keys:
    if not r.kl_beta:
        return {f"{ACTOR}.use_kl_loss": False}
    return {f"{ACTOR}.use_kl_loss": True, f"{ACTOR}.kl_loss_coef": r.kl_beta, f"{ACTOR}.kl_loss_type": "k3+"}


def schedule_keys(r: Recipe) -> Keys:
    keys: Keys = {
        f"{ACTOR}.optim.lr_scheduler_type": r.schedule.kind,
        f"{ACTOR}.optim.lr_warmup_steps": r.schedule.warmup,
    }
    if r.schedule.kind == "cosine":
        keys[f"{ACTOR}.optim.min_lr_ratio"] = 0.0
    return keys


def rewards_keys(r: Recipe) -> Keys:
    return {
        "reward.custom_reward_function.path": "plugins/evo_reward.py",
        "reward.custom_reward_function.name": "compute_score",
        "reward.reward_manager.source": "importlib",
        "reward.reward_manager.name": "EvoRewardManager",
        "reward.reward_manager.module.path": "plugins/evo_reward.py",
    }


def filter_plugin(r: Recipe) -> bool:
    """Whether the filter needs its own sampler in verl: to draw again, or to keep its statistics from step to step."""
    return r.group_filter.kind != "none" and (r.resample > 0 or r.group_filter.kind == "ema_std")


def filter_keys(r: Recipe) -> Keys:
    if not filter_plugin(r):
        return {}
    return {
        "trainer.v1.sampler.custom_sampler.path": "plugins/evo_filter.py",
        "trainer.v1.sampler.custom_sampler.name": "EvoReplayBuffer",
    }


def turns_keys(r: Recipe) -> Keys:
    if r.max_turns == 1:
        return {}
    return {
        f"{ROLLOUT}.agent.agent_loop_config_path": "plugins/agent.yaml",
        f"{ROLLOUT}.agent.default_agent_loop": "evotrainer",
    }


def is_cap_keys(r: Recipe) -> Keys:
    if r.is_cap is None:
        return {"algorithm.rollout_correction.rollout_is": None}
    return {
        "algorithm.rollout_correction.rollout_is": "token",
        "algorithm.rollout_correction.rollout_is_threshold": r.is_cap,
    }


def response_tokens(r: Recipe, observation_tokens: int = OBSERVATION_TOKENS) -> int:
    """Tokens after the prompt: all turns, and the observations between them."""
    return r.max_turns * r.max_tokens + (r.max_turns - 1) * observation_tokens

"""Every recipe factor in verl's terms: mapped, delivered or refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from evotrainer.factors.trainer_mapping import carried, owners
from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.trainers.command.mapping import Mapped
from evotrainer.trainers.command.options import parse

VERL = Mapped.of(parse({"command": "x", "map": "verl"}))

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def recipe(**changes: Any) -> Recipe:
    return parse_recipe({"rewards": {"right": 1.0}, **changes})


def keys(**changes: Any) -> dict[str, Any]:
    return VERL.settings(recipe(**changes))


def test_every_key_is_set_by_some_recipe() -> None:
    every = [recipe(), recipe(loss="dr_grpo", kl_beta=0.1, is_cap=2.0, max_turns=4, schedule={"kind": "cosine"}),
             recipe(group_filter={"kind": "ema_std"}, resample=3)]  # fmt: skip
    seen = {k for r in every for k in VERL.settings(r)}
    assert seen | {"data.max_response_length"} == set(owners("verl")), "a key that no recipe sets is no mapping"


LOSSES = {
    "grpo": ("vanilla", "seq-mean-token-mean", 0.1),
    "dapo": ("vanilla", "token-mean", 0.1),
    "bnpo": ("vanilla", "token-mean", 0.1),
    "dr_grpo": ("vanilla", "seq-mean-token-sum-norm", 0.1),
    "gspo": ("gspo", "seq-mean-token-mean", 0.1),
    "cispo": ("cispo", "token-mean", 1.0),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_are_mapped_with_their_clip_range(loss: str) -> None:
    k = keys(loss=loss, clip={"low": 0.1, "high": 0.3}, max_tokens=50, max_turns=2)
    assert (k[f"{ACTOR}.policy_loss.loss_mode"], k[f"{ACTOR}.loss_agg_mode"], k[f"{ACTOR}.clip_ratio_low"]) == LOSSES[
        loss
    ]
    assert k[f"{ACTOR}.clip_ratio_high"] == 0.3
    assert k.get(f"{ACTOR}.loss_scale_factor") == (100 if loss == "dr_grpo" else None)


def test_sizes_sampling_and_optimizer_are_mapped() -> None:
    k = keys(prompts_per_step=6, group_size=5, updates_per_step=2, steps=7, temperature=0.7, top_p=0.9, lr=1e-6,
             grad_clip=0.5, weight_decay=0.01, schedule={"kind": "cosine", "warmup": 3}, entropy_bonus=0.01,
             kl_beta=0.2, is_cap=2.0)  # fmt: skip
    wanted = {
        "data.train_batch_size": 6,
        f"{ACTOR}.ppo_mini_batch_size": 6,
        f"{ROLLOUT}.n": 5,
        f"{ACTOR}.ppo_epochs": 2,
        "trainer.total_training_steps": 7,
        f"{ROLLOUT}.temperature": 0.7,
        f"{ROLLOUT}.top_p": 0.9,
        f"{ACTOR}.optim.lr": 1e-6,
        f"{ACTOR}.optim.clip_grad": 0.5,
        f"{ACTOR}.optim.weight_decay": 0.01,
        f"{ACTOR}.optim.lr_scheduler_type": "cosine",
        f"{ACTOR}.optim.lr_warmup_steps": 3,
        f"{ACTOR}.entropy_coeff": 0.01,
        f"{ACTOR}.use_kl_loss": True,
        f"{ACTOR}.kl_loss_coef": 0.2,
        "algorithm.rollout_correction.rollout_is": "token",
        "algorithm.rollout_correction.rollout_is_threshold": 2.0,
        "algorithm.adv_estimator": "evo_mean_norm",
    }
    assert {x: k[x] for x in wanted} == wanted
    assert keys()[f"{ACTOR}.use_kl_loss"] is False and keys()["algorithm.rollout_correction.rollout_is"] is None


REFUSED = {
    "schedule": {"schedule": {"kind": "linear"}},
    "curriculum": {"curriculum": {"kind": "pass_rate_band"}},
    "averaging": {"averaging": {"kind": "ema"}},
    "phases": {"phases": [{"kind": "own", "steps": 1}, {"kind": "rl"}]},
    "credit": {"credit": {"kind": "turn"}, "max_turns": 2},
    "replay": {"replay": {"weight": 0.1}},
    "written": {"written": {"short": "def reward(rollout):\n    return 1.0\n"}},
    "hooks": {"hooks": {"plain": "def advantages(group):\n    return group['advantages']\n"}},
    "prompt_noise": {"prompt_noise": 0.5},
    "sft_anchor": {"sft_anchor": 0.1},
    "mask_truncated": {"mask_truncated": True, "max_turns": 2},
}


@pytest.mark.parametrize("factor", REFUSED)
def test_what_verl_cannot_do_is_refused_by_name(factor: str) -> None:
    (said,) = VERL.refusals(recipe(**REFUSED[factor]))
    assert said.startswith(f"{factor}: ") and ("choose" in said or "set" in said)


def test_all_that_is_refused_is_tested() -> None:
    assert {name for name, how in carried("verl").items() if how.why} == set(REFUSED)
    assert not VERL.refusals(recipe(scaffold={"system": "Think first."}, start={"steps": 3, "rewards": {"right": 1}}))


def test_plugins_come_with_the_factors_that_need_them() -> None:
    sampler = "trainer.v1.sampler.custom_sampler.path"
    assert sampler not in keys(group_filter={"kind": "zero_variance"})
    for more in ({"kind": "zero_variance"}, {"kind": "ema_std"}):
        assert keys(group_filter=more, resample=1)[sampler] == "pkg://evotrainer.extras.verl.plugins.evo_filter"
    assert keys(max_turns=2)["actor_rollout_ref.rollout.agent.default_agent_loop"] == "evotrainer"
    assert keys(group_filter={"kind": "snr_top_p"}, resample=1)["data.gen_batch_size"] == 1

"""Every recipe factor in verl's terms: configuration keys, a plug-in that delivers it, or a refusal with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from evotrainer.errors import ConfigError
from evotrainer.extras.verl import ESTIMATOR
from evotrainer.extras.verl.factors import (
    ACTOR,
    ROLLOUT,
    Keys,
    clip_keys,
    filter_keys,
    filter_plugin,
    is_cap_keys,
    kl_keys,
    loss_keys,
    response_tokens,
    rewards_keys,
    schedule_keys,
    turns_keys,
)
from evotrainer.records.recipe import Recipe

How = Literal["key", "plugin", "refused"]


@dataclass(frozen=True, slots=True)
class VerlFactor:
    """One factor. `keys` is what it may set, `to` the values it sets for a recipe,
    `refuse` why a value cannot be had."""

    factor: str
    how: Mapping[str, How]
    """Part of the factor (empty: all of it) -> how it is translated."""
    keys: tuple[str, ...]
    note: str
    to: Callable[[Recipe], Keys] = lambda r: {}
    refuse: Callable[[Recipe], str | None] = lambda r: None
    plugins: tuple[str, ...] = ()


_KEY: Mapping[str, How] = {"": "key"}
_PLUGIN: Mapping[str, How] = {"": "plugin"}
_REFUSED: Mapping[str, How] = {"": "refused"}


def _refused(factor: str, why: str, value: str, asked: Callable[[Recipe], bool]) -> VerlFactor:
    """A factor of which verl knows one value only."""
    only = f"`{value}`" if value == "none" else value
    return VerlFactor(
        factor, _REFUSED, (), f"{why}; only {only}", refuse=lambda r: f"{why}; set it to {value}" if asked(r) else None
    )


MAPPING: tuple[VerlFactor, ...] = (
    VerlFactor(
        "loss",
        _KEY,
        (
            f"{ACTOR}.policy_loss.loss_mode",
            f"{ACTOR}.loss_agg_mode",
            f"{ACTOR}.loss_scale_factor",
            f"{ACTOR}.clip_ratio_c",
        ),
        "grpo, gspo: mean of token means; dapo, bnpo, cispo: token mean of the batch; dr_grpo: "
        "sum over max_tokens * max_turns. verl's second clip of negative advantages is put out of reach",
        loss_keys,
    ),
    VerlFactor(
        "clip",
        _KEY,
        (f"{ACTOR}.clip_ratio", f"{ACTOR}.clip_ratio_low", f"{ACTOR}.clip_ratio_high"),
        "cispo: only the cap at 1 + high applies, as in our loss",
        clip_keys,
    ),
    VerlFactor(
        "kl_beta",
        _KEY,
        (f"{ACTOR}.use_kl_loss", f"{ACTOR}.kl_loss_coef", f"{ACTOR}.kl_loss_type"),
        "k3 as value, gradient of k2: on the first pass over a step the same as ours (gspo: ours passes it through the "
        "sequence's ratio); on later passes ours also weighs by the ratio",
        kl_keys,
    ),
    VerlFactor(
        "reward_scaling",
        _PLUGIN,
        ("algorithm.adv_estimator",),
        "advantage estimator `evo_mean_norm`: centred by group; divided by the group's or batch's standard deviation "
        "+ 1e-4, or not",
        lambda r: {"algorithm.adv_estimator": ESTIMATOR},
        plugins=("evo_advantage.py",),
    ),
    VerlFactor(
        "negative_weight",
        _PLUGIN,
        (),
        "in `evo_mean_norm`, after the division",
        plugins=("evo_advantage.py",),
    ),
    _refused("credit", "our estimator has one advantage for an episode", "episode", lambda r: r.credit.kind == "turn"),
    VerlFactor("lr", _KEY, (f"{ACTOR}.optim.lr",), "", lambda r: {f"{ACTOR}.optim.lr": r.lr}),
    VerlFactor(
        "schedule",
        {"constant, cosine": "key", "linear": "refused"},
        (f"{ACTOR}.optim.lr_scheduler_type", f"{ACTOR}.optim.lr_warmup_steps", f"{ACTOR}.optim.min_lr_ratio"),
        "verl's warm-up begins at 0, ours at lr / warmup. linear: verl's FSDP engine has constant and cosine only",
        schedule_keys,
        lambda r: (
            "verl's FSDP engine has constant and cosine schedules only; choose one of them"
            if r.schedule.kind == "linear"
            else None
        ),
    ),
    VerlFactor(
        "weight_decay",
        _KEY,
        (f"{ACTOR}.optim.weight_decay",),
        "verl decays every parameter, we decay matrices only",
        lambda r: {f"{ACTOR}.optim.weight_decay": r.weight_decay},
    ),
    VerlFactor(
        "grad_clip",
        _KEY,
        (f"{ACTOR}.optim.clip_grad", f"{ACTOR}.grad_clip"),
        "",
        lambda r: {f"{ACTOR}.optim.clip_grad": r.grad_clip, f"{ACTOR}.grad_clip": r.grad_clip},
    ),
    VerlFactor(
        "steps",
        _KEY,
        ("trainer.total_training_steps", "trainer.total_epochs"),
        "epochs as many as steps: only the steps bound the training",
        lambda r: {"trainer.total_training_steps": r.steps, "trainer.total_epochs": r.steps},
    ),
    VerlFactor(
        "prompts_per_step",
        _KEY,
        ("data.train_batch_size", f"{ACTOR}.ppo_mini_batch_size"),
        "one optimizer step per pass: the mini-batch is the batch",
        lambda r: {"data.train_batch_size": r.prompts_per_step, f"{ACTOR}.ppo_mini_batch_size": r.prompts_per_step},
    ),
    VerlFactor("group_size", _KEY, (f"{ROLLOUT}.n",), "", lambda r: {f"{ROLLOUT}.n": r.group_size}),
    VerlFactor(
        "updates_per_step", _KEY, (f"{ACTOR}.ppo_epochs",), "", lambda r: {f"{ACTOR}.ppo_epochs": r.updates_per_step}
    ),
    VerlFactor(
        "temperature",
        _KEY,
        (f"{ROLLOUT}.temperature",),
        "of validation too, unless `deploy_temperature` or `[evaluation.protocol]` is set",
        lambda r: {f"{ROLLOUT}.temperature": r.temperature},
    ),
    VerlFactor(
        "deploy_temperature",
        _KEY,
        (f"{ROLLOUT}.val_kwargs.temperature", f"{ROLLOUT}.val_kwargs.do_sample"),
        "of validation",
        lambda r: {
            f"{ROLLOUT}.val_kwargs.temperature": r.deploy_temperature or r.temperature,
            f"{ROLLOUT}.val_kwargs.do_sample": True,
        },
    ),
    VerlFactor(
        "top_p",
        _KEY,
        (f"{ROLLOUT}.top_p", f"{ROLLOUT}.val_kwargs.top_p"),
        "of validation too",
        lambda r: {f"{ROLLOUT}.top_p": r.top_p, f"{ROLLOUT}.val_kwargs.top_p": r.top_p},
    ),
    VerlFactor(
        "max_tokens",
        _KEY,
        ("data.max_response_length",),
        "with several turns: max_tokens for each, and room for the observations between them (--observation-tokens)",
        lambda r: {"data.max_response_length": response_tokens(r)},
    ),
    VerlFactor(
        "max_turns",
        {"1": "key", "more": "plugin"},
        (f"{ROLLOUT}.agent.agent_loop_config_path", f"{ROLLOUT}.agent.default_agent_loop"),
        "more than one turn: the agent loop `evotrainer` plays our environment's episodes; observations carry no loss",
        turns_keys,
        plugins=("evo_agent.py", "agent.yaml"),
    ),
    VerlFactor(
        "rewards",
        _PLUGIN,
        (
            "reward.custom_reward_function.path",
            "reward.custom_reward_function.name",
            "reward.reward_manager.source",
            "reward.reward_manager.name",
            "reward.reward_manager.module.path",
        ),
        "the environment's own components, weighted; a fault of the infrastructure is tried again, "
        "then the rollout is left out (never reward 0)",
        rewards_keys,
        plugins=("evo_reward.py",),
    ),
    VerlFactor("length", _PLUGIN, (), "in the reward function, on the tokens sampled", plugins=("evo_reward.py",)),
    VerlFactor(
        "repetition_penalty", _PLUGIN, (), "in the reward function, on the tokens sampled", plugins=("evo_reward.py",)
    ),
    VerlFactor(
        "group_filter",
        _PLUGIN,
        ("trainer.v1.sampler.custom_sampler.path", "trainer.v1.sampler.custom_sampler.name"),
        "groups filtered out leave the loss in `evo_mean_norm`; with ema_std or resample a sampler of our own decides",
        filter_keys,
        plugins=("evo_advantage.py", "evo_filter.py"),
    ),
    VerlFactor(
        "resample",
        _PLUGIN,
        ("data.gen_batch_size",),
        "the sampler draws new prompts for dropped groups, round by round; verl's own filter_groups has no bound on "
        "rounds and knows zero variance only",
        lambda r: {"data.gen_batch_size": 1} if filter_plugin(r) and r.resample else {},
        plugins=("evo_filter.py",),
    ),
    _refused(
        "curriculum",
        "verl 0.9.1 draws prompts by a random sampler that learns nothing of their rewards",
        "none",
        lambda r: r.curriculum.kind != "none",
    ),
    _refused("averaging", "verl keeps no average of its weights", "none", lambda r: r.averaging.kind != "none"),
    _refused(
        "start",
        "verl trains one recipe: train the earlier one first and give its policy with --model",
        "base",
        lambda r: r.start is not None,
    ),
    _refused("phases", "verl trains by one loss all along", "none", lambda r: bool(r.phases)),
    _refused("replay", "verl's actor loss has no supervised term", "weight 0", lambda r: r.replay.weight > 0),
    _refused(
        "written", "reward functions that a recipe holds run in our sandbox only", "none", lambda r: bool(r.written)
    ),
    _refused("hooks", "functions that a recipe holds run in our sandbox only", "none", lambda r: bool(r.hooks)),
    _refused("prompt_noise", "prompts are rendered once, before the training", "0", lambda r: r.prompt_noise > 0),
    _refused("sft_anchor", "verl's actor loss has no supervised term", "0", lambda r: bool(r.sft_anchor)),
    VerlFactor(
        "entropy_bonus",
        _KEY,
        (f"{ACTOR}.entropy_coeff",),
        "grpo, gspo, dr_grpo: verl averages the entropy as it averages the loss, we over all tokens",
        lambda r: {f"{ACTOR}.entropy_coeff": r.entropy_bonus},
    ),
    VerlFactor(
        "is_cap",
        _KEY,
        ("algorithm.rollout_correction.rollout_is", "algorithm.rollout_correction.rollout_is_threshold"),
        "token-level truncated importance sampling",
        is_cap_keys,
    ),
    VerlFactor(
        "mask_truncated",
        _PLUGIN,
        (),
        "in `evo_mean_norm`: completions as long as they may be leave the loss (one turn only)",
        refuse=lambda r: (
            "which of several turns was cut is not known where the loss is masked; "
            "set mask_truncated to false or max_turns to 1"
            if r.mask_truncated and r.max_turns > 1
            else None
        ),
        plugins=("evo_advantage.py",),
    ),
    VerlFactor(
        "knobs",
        _PLUGIN,
        (),
        "prompts are rendered with them; rewards and episodes use them",
        plugins=("evo_reward.py",),
    ),
    _refused("scaffold", "verl renders the environment's own prompts", "none", lambda r: bool(r.scaffold)),
)


def translate(recipe: Recipe) -> tuple[Keys, dict[str, str]]:
    """(verl key -> value, verl key -> factor it comes from). Paths are relative to the run folder.

    Raises ConfigError naming every factor that verl cannot be given, with the reason.
    """
    refused = [f"{m.factor}: {why}" for m in MAPPING if (why := m.refuse(recipe))]
    if refused:
        raise ConfigError("verl cannot train this recipe: " + "; ".join(refused))
    keys: Keys = {}
    origin: dict[str, str] = {}
    for m in MAPPING:
        for key, value in m.to(recipe).items():
            keys[key] = value
            origin[key] = m.factor
    return keys, origin


def owners() -> dict[str, str]:
    """Every verl key that belongs to a factor -> that factor."""
    return {key: m.factor for m in MAPPING for key in m.keys}


def plugins_of(recipe: Recipe) -> tuple[str, ...]:
    """Plug-in files that this recipe needs."""
    names = ["evo_reward.py", "evo_advantage.py"]
    if filter_plugin(recipe):
        names.append("evo_filter.py")
    if recipe.max_turns > 1:
        names += ["evo_agent.py", "agent.yaml"]
    return tuple(names)


def table() -> str:
    """The mapping as a Markdown table; docs/verl.md holds it (tests/extras/verl/test_mapping.py)."""
    rows = ["| factor | delivered as | verl key or plug-in | remarks |", "|---|---|---|---|"]
    for m in MAPPING:
        how = "; ".join(f"{part}: {h}" if part else h for part, h in m.how.items())
        where = ", ".join(f"`{x}`" for x in (*m.keys, *m.plugins)) or "-"
        rows.append(f"| `{m.factor}` | {how} | {where} | {m.note or '-'} |")
    return "\n".join(rows)

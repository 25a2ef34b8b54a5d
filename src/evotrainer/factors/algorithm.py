"""Rows of the factors that say how the gradient is taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evotrainer.factors.data import ACTOR
from evotrainer.factors.gradient import many_passes, weighed_against
from evotrainer.factors.table import (
    UNSET,
    Factor,
    Move,
    MoveContext,
    TrainerSupport,
    Variant,
    error,
    refused,
    warning,
)

HIGHEST_LR = 1e-3
NO_VALUES = "none learns a value network; the nearest is grpo: PPO's clipped ratio, the group's mean as its baseline"
OPTIM, CORRECTION = f"{ACTOR}.optim", "algorithm.rollout_correction"
VERL_LOSS = {
    "grpo": ("vanilla", "seq-mean-token-mean"),
    "dapo": ("vanilla", "token-mean"),
    "bnpo": ("vanilla", "token-mean"),
    "dr_grpo": ("vanilla", "seq-mean-token-sum-norm"),
    "gspo": ("gspo", "seq-mean-token-mean"),
    "cispo": ("cispo", "token-mean"),
}
"""Loss -> verl's mode and aggregation."""
NO_DUAL_CLIP = 1e9
"""verl bounds the ratio of negative advantages a second time (clip_ratio_c); our losses and TRL's do not."""
HOOKS = (
    "object: name -> Python source, one file added, replaced or removed; the file defines advantages(group) -> list of "
    "numbers in place of the recipe's advantages, weights(rollouts) -> list of numbers >= 0 that multiply them (a "
    "group of zeros is dropped), or select(tasks, history) -> places of the tasks to draw. group: {step, steps, "
    "rewards, components, lengths, logprobs, entropies, finishes, advantages}, lists by rollout; rollouts: [{group, "
    "reward, components, ...}]; tasks: [{tags}]; history: {step, steps, n, taken, groups: [[task, step, pass rate]]}. "
    "Pure, imports as written_reward; the same checks and labels, sandbox and backtest"
)


def losses(s: MoveContext) -> Iterator[str]:
    """dapo and dr_grpo differ from what they replace by more than the size of one gradient; gspo and cispo differ
    where the ratio leaves 1."""
    r = s.recipe
    if r.loss == "grpo":
        yield "dapo"
    # dapo divides by the step's tokens, dr_grpo by a constant
    if r.loss in ("grpo", "bnpo") or (r.loss == "dapo" and weighed_against(r)):
        yield "dr_grpo"


def ratio_losses(s: MoveContext) -> Iterator[str]:
    yield from (x for x in ("gspo", "cispo") if many_passes(s.recipe) and s.recipe.loss != x)


def rates(s: MoveContext, *times: float) -> list[float]:
    return [float(f"{s.recipe.lr * x:.3g}") for x in times if s.recipe.lr * x <= HIGHEST_LR]


def high_then_zero(s: MoveContext) -> Iterator[Variant]:
    """2 and 3 times the rate, falling linearly to 0: only from a constant rate under which nothing collapses.

    A collapsed policy or collapsed entropy says that the rate is high already.
    """
    r = s.recipe
    if r.schedule.kind == "constant" and not (
        s.symptoms.get("policy_collapse") or s.symptoms.get("exploration_collapse")
    ):
        for lr in rates(s, 2, 3):
            value = {"lr": lr, "schedule": {"kind": "linear", "warmup": r.schedule.warmup}}
            yield Variant(value, f"x{lr / r.lr:.0f} linear")


def schedules(s: MoveContext, *kinds: str) -> list[Any]:
    return [Variant({"kind": k, "warmup": s.recipe.schedule.warmup}, k) for k in kinds if s.recipe.schedule.kind != k]


def averages(s: MoveContext) -> Iterator[Variant]:
    """Mean of the last half and quarter, exponential mean: where the training score no longer rises in its last
    half."""
    gain = s.metrics.get("late_gain")
    if s.recipe.averaging.kind != "none" or gain is None or gain > 0.05:
        return
    yield Variant({"kind": "tail_mean", "share": 0.5}, "last half")
    yield Variant({"kind": "tail_mean", "share": 0.25}, "last quarter")
    yield Variant({"kind": "ema", "decay": 0.9}, "ema 0.9")


def clips(s: MoveContext, low: float, high: float) -> list[dict[str, float]]:
    return [{"low": low, "high": high}] if many_passes(s.recipe) else []


ROWS = (
    Factor(
        "loss",
        names={
            "": "loss_type adv_estimator algorithm policy_loss",
            " (gspo weighs by sequence)": "importance_sampling_level",
        },
        meant={
            "ppo": NO_VALUES,
            "gae": NO_VALUES,
            "vanilla": "verl's name of the clipped ratio is grpo here",
            "rloo": "the nearest is dr_grpo with recipe.reward_scaling=none: the baseline is the group's mean",
            "reinforce": "the nearest is dr_grpo with recipe.reward_scaling=none and recipe.updates_per_step=1",
            "reinforce_plus_plus": "the nearest is grpo with recipe.reward_scaling=batch",
            "sft": "supervised steps are parts of a training: recipe.phases",
            "dpo": "none learns from pairs; the usual loss on rewards is grpo",
        },
        moves=(
            Move(
                "no_length_bias",
                losses,
                "dividing by the answer's own length rewards long wrong answers (Dr.GRPO)",
                "length_gaming; truncation echo_trap false_revival",
            ),
            Move(
                "other_ratio",
                ratio_losses,
                "one ratio per sequence, or a capped weight in place of a clipped gradient, keeps more of a sample",
                "off_policy_drift; echo_trap exploration_collapse",
            ),
        ),
        embedded=True,
        trl=TrainerSupport(
            {
                "loss_type": lambda r: "grpo" if r.loss == "gspo" else r.loss,
                "importance_sampling_level": lambda r: "sequence" if r.loss == "gspo" else UNSET,
            },
            "same names; gspo is `grpo` with sequence-level importance sampling. `bnpo` normalises within a "
            "micro-batch",
        ),
        verl=TrainerSupport(
            {
                f"{ACTOR}.policy_loss.loss_mode": lambda r: VERL_LOSS[r.loss][0],
                f"{ACTOR}.loss_agg_mode": lambda r: VERL_LOSS[r.loss][1],
                f"{ACTOR}.loss_scale_factor": lambda r: r.max_tokens * r.max_turns if r.loss == "dr_grpo" else UNSET,
                f"{ACTOR}.clip_ratio_c": lambda r: NO_DUAL_CLIP,
            },
            "grpo, gspo: mean of token means; dapo, bnpo, cispo: token mean of the batch; dr_grpo: sum over "
            "max_tokens * max_turns. verl's second clip of negative advantages is put out of reach",
        ),
    ),
    Factor(
        "clip",
        names={
            ".low": "epsilon epsilon_low cliprange clip_range clip_ratio clip_ratio_low",
            ".high": "epsilon_high clip_ratio_high",
        },
        lint=(
            error(
                lambda r: r.clip.low == 0 and r.clip.high == 0 and r.updates_per_step > 1,
                "clip range is empty: no gradient after the first pass; widen it",
            ),
        ),
        moves=(
            Move(
                "clip_higher",
                lambda s: clips(s, s.recipe.clip.low, max(s.recipe.clip.high, 0.28)),
                "unlikely but good tokens may grow further (DAPO)",
                "exploration_collapse entropy_collapse; echo_trap template_collapse",
            ),
            Move(
                "clip_tighter",
                lambda s: clips(s, 0.1, 0.1),
                "smaller steps stay where the samples came from",
                "off_policy_drift",
            ),
        ),
        embedded=True,
        trl=TrainerSupport(
            {
                "epsilon": "clip.low",
                # TRL's epsilon_high is the cap itself for CISPO, an offset from 1 for all others
                "epsilon_high": lambda r: r.clip.high + (1.0 if r.loss == "cispo" else 0.0),
            },
            "low and high; for cispo the cap is 1 + high",
        ),
        verl=TrainerSupport(
            {
                f"{ACTOR}.clip_ratio": "clip.high",
                f"{ACTOR}.clip_ratio_low": lambda r: 1.0 if r.loss == "cispo" else r.clip.low,
                f"{ACTOR}.clip_ratio_high": "clip.high",
            },
            "cispo: only the cap at 1 + high applies, as in our loss",
        ),
    ),
    Factor(
        "kl_beta",
        names="beta kl_coef kl_coeff kl_loss_coef kl_penalty use_kl_loss",
        lint=(warning(lambda r: r.kl_beta > 0.5, "KL weight above 0.5 pins the policy to its start"),),
        moves=(
            Move(
                "kl_on",
                (0.005, 0.02),
                "staying near the start policy limits what an imperfect reward can spoil",
                "policy_collapse divergence; template_collapse efficiency_collapse proxy_gap laziness length_gaming",
            ),
        ),
        off="the start policy is no longer worth staying close to",
        off_addresses="; exploration_collapse echo_trap dead_training",
        embedded=True,
        trl=TrainerSupport(
            {"beta": "kl_beta", "use_bias_correction_kl": lambda r: True},
            "against the start policy, k3 times the ratio",
        ),
        verl=TrainerSupport(
            {
                f"{ACTOR}.use_kl_loss": lambda r: r.kl_beta > 0,
                f"{ACTOR}.kl_loss_coef": lambda r: r.kl_beta or UNSET,
                f"{ACTOR}.kl_loss_type": lambda r: "k3+" if r.kl_beta else UNSET,
            },
            "k3 as value, gradient of k2: on the first pass over a step the same as ours (gspo: ours passes it "
            "through the sequence's ratio); on later passes ours also weighs by the ratio",
        ),
    ),
    Factor(
        "lr",
        lint=(
            warning(
                lambda r: r.lr > HIGHEST_LR,
                "lr above 1e-3 collapsed the small policies of the embedded trainer where it was tried",
            ),
        ),
        moves=(
            Move(
                "lower_lr",
                lambda s: rates(s, 0.5),
                "smaller steps keep the policy from collapsing",
                "policy_collapse divergence; off_policy_drift echo_trap exploration_collapse template_collapse",
            ),
            Move(
                "higher_lr", lambda s: rates(s, 1.5), "the policy may still be learning too slowly", "; dead_training"
            ),
        ),
        embedded=True,
        trl=TrainerSupport({"learning_rate": "lr"}, "AdamW, betas 0.9 and 0.95"),
        verl=TrainerSupport({f"{OPTIM}.lr": "lr"}),
    ),
    Factor(
        "schedule",
        names={
            ".warmup": "warmup_steps lr_warmup_steps",
            ".warmup (steps, no share)": "warmup_ratio",
            ".kind": "lr_scheduler_type lr_scheduler warmup_style",
        },
        meant={
            "constant_with_warmup": "that is constant here; recipe.schedule.warmup says over how many steps it rises"
        },
        moves=(
            Move(
                "decay_lr",
                lambda s: schedules(s, "linear", "cosine") if s.recipe.schedule.kind == "constant" else [],
                "large steps first, small steps last average out the noise",
                "; echo_trap off_policy_drift",
            ),
            Move(
                "constant_lr",
                lambda s: schedules(s, "constant"),
                "the last steps are wasted at a vanishing rate",
            ),
        ),
        embedded=True,
        trl="per step: linear warm-up from 1/warmup, then constant, linear or cosine to 0",
        verl=refused(
            "verl's FSDP engine has constant and cosine schedules only",
            "choose one of them",
            lambda r: r.schedule.kind == "linear",
            "verl's warm-up begins at 0, ours at lr / warmup. linear: verl's FSDP engine has constant and cosine only",
            part=True,
            sets={
                f"{OPTIM}.lr_scheduler_type": "schedule.kind",
                f"{OPTIM}.lr_warmup_steps": "schedule.warmup",
                f"{OPTIM}.min_lr_ratio": lambda r: 0.0 if r.schedule.kind == "cosine" else UNSET,
            },
        ),
    ),
    Factor(
        "lr_schedule",
        moves=(
            Move(
                "high_then_zero",
                high_then_zero,
                "a rate too high to stay at learns fast, and falling to 0 averages its noise out again",
                "; dead_training",
            ),
        ),
    ),
    Factor(
        "averaging",
        lint=(
            warning(
                lambda r: r.averaging.kind == "tail_mean" and r.averaging.share * r.steps <= 1,
                "{r.averaging.share:g} of {r.steps} steps is one step: nothing is averaged",
            ),
            warning(
                lambda r: r.averaging.kind == "ema" and 1 / (1 - r.averaging.decay) > r.steps,
                "decay {r.averaging.decay:g} remembers more than the {r.steps} steps there are",
            ),
        ),
        moves=(
            Move(
                "average_weights",
                averages,
                "the last steps move the weights to and fro; their mean lies in the middle",
                "; policy_collapse",
            ),
        ),
        off="an average lags behind weights that still get better",
        embedded=True,
        trl="after each step, of all trained weights; of adapters each of the two factors by itself",
        verl=refused("verl keeps no average of its weights", "set it to none", lambda r: r.averaging.kind != "none"),
    ),
    Factor(
        "weight_decay",
        moves=(Move("weight_decay", (0.01,), "decay keeps weights small", "; template_collapse"),),
        off="decay fights the warm start",
        embedded=True,
        trl=TrainerSupport({"weight_decay": "weight_decay"}, "not on norms and biases"),
        verl=TrainerSupport(
            {f"{OPTIM}.weight_decay": "weight_decay"}, "verl decays every parameter, we decay matrices only"
        ),
    ),
    Factor(
        "grad_clip",
        moves=(
            Move(
                "clip_gradient",
                lambda s: [0.3] if s.recipe.grad_clip > 0.3 else [],
                "spikes of the gradient come before a collapse",
                "policy_collapse divergence; echo_trap off_policy_drift",
            ),
        ),
        embedded=True,
        trl=TrainerSupport({"max_grad_norm": "grad_clip"}, "a gradient that is not finite ends the training"),
        verl=TrainerSupport({f"{OPTIM}.clip_grad": "grad_clip", f"{ACTOR}.grad_clip": "grad_clip"}),
    ),
    Factor(
        "steps",
        names={
            "": "max_steps total_training_steps",
            " (each draws prompts_per_step prompts)": "num_train_epochs total_epochs epochs",
        },
        moves=(
            Move(
                "more_steps",
                lambda s: [Variant(round(s.recipe.steps * 1.5), "x1.5")],
                "the score may still be rising at the last step",
            ),
        ),
        embedded=True,
        trl=TrainerSupport({"max_steps": lambda r: r.steps * r.updates_per_step}, "times updates_per_step"),
        verl=TrainerSupport(
            {"trainer.total_training_steps": "steps", "trainer.total_epochs": "steps"},
            "epochs as many as steps: only the steps bound the training",
        ),
    ),
    Factor(
        "updates_per_step",
        names="ppo_epochs",
        moves=(
            Move(
                "more_passes",
                (2,),
                "a sample teaches more when it is used twice, and sampling costs most",
                "; dead_training",
            ),
        ),
        off="one pass stays on the samples' own policy",
        off_addresses="off_policy_drift; echo_trap",
        embedded=True,
        trl=TrainerSupport({"num_iterations": "updates_per_step"}, "passes over each step's rollouts"),
        verl=TrainerSupport({f"{ACTOR}.ppo_epochs": "updates_per_step"}),
    ),
    Factor(
        "is_cap",
        names="vllm_importance_sampling_cap tis_imp_ratio_cap",
        moves=(
            Move(
                "cap_ratio",
                (2.0,),
                "a capped trainer/sampler ratio bounds the bias of stale samples (TIS)",
                "off_policy_drift",
            ),
        ),
        off="nothing drifts, so the cap only biases",
        embedded=True,
        trl=TrainerSupport(
            {
                "vllm_importance_sampling_correction": lambda r: r.is_cap is not None,
                "vllm_importance_sampling_mode": lambda r: UNSET if r.is_cap is None else "token_truncate",
                "vllm_importance_sampling_clip_max": lambda r: UNSET if r.is_cap is None else r.is_cap,
            },
            "token_truncate; without vLLM EvoTrainer computes the same ratio from the sampler's log-probabilities",
        ),
        verl=TrainerSupport(
            {
                f"{CORRECTION}.rollout_is": lambda r: None if r.is_cap is None else "token",
                f"{CORRECTION}.rollout_is_threshold": lambda r: UNSET if r.is_cap is None else r.is_cap,
            },
            "token-level truncated importance sampling",
        ),
    ),
    Factor(
        "entropy_bonus",
        names="entropy_coeff",
        lint=(warning(lambda r: r.entropy_bonus < 0, "a negative entropy bonus drives collapse"),),
        moves=(
            Move(
                "entropy_bonus",
                (0.003, 0.01),
                "paying for entropy keeps alternatives alive",
                "exploration_collapse entropy_collapse sharpening; echo_trap template_collapse",
            ),
        ),
        off="the bonus may drown the reward",
        off_addresses="; tool_misuse",
        embedded=True,
        trl=TrainerSupport({"entropy_coef": "entropy_bonus"}, "mean over the tokens of a micro-batch"),
        verl=TrainerSupport(
            {f"{ACTOR}.entropy_coeff": "entropy_bonus"},
            "grpo, gspo, dr_grpo: verl averages the entropy as it averages the loss, we over all tokens",
        ),
    ),
    Factor(
        "hooks",
        legal=HOOKS,
        embedded=True,
        trl="in the sandbox: functions of the recipe that weigh, scale and choose",
        verl=refused(
            "functions that a recipe holds run in our sandbox only", "set it to none", lambda r: bool(r.hooks)
        ),
    ),
)

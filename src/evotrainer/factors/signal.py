"""Rows of the factors that say which attempts give a gradient, and how strongly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from evotrainer.factors.gradient import dead_groups_act, weighed_against
from evotrainer.factors.table import (
    UNSET,
    Factor,
    Move,
    MoveContext,
    Need,
    TrainerSupport,
    Variant,
    error,
    refused,
    warning,
)
from evotrainer.records.recipe import Recipe

DEAD, SPREAD, NEGATIVE = "frac_reward_zero_std", "reward_std", "negative_share"
PUSHES_DOWN = 0.5
"""Share of |advantage| x tokens above which a lighter weight of negative advantages is offered: more than half."""
LONG = 4
"""Turns from which it matters which of them is credited."""
NARROW, MANY_DEAD = 0.2, 0.4
"""Spread within groups, and share of dead groups, from which turn rewards are offered."""
ROLLOUT = "actor_rollout_ref.rollout"
ADVANTAGE = "evo_advantage.py"
PLUGINS = "pkg://evotrainer.extras.verl.plugins"
"""Where verl finds ours."""
FILTER = f"{PLUGINS}.evo_filter"


def own_sampler(r: Recipe) -> bool:
    """Whether the filter needs its own sampler in verl: to draw again, or to keep its statistics from step to step."""
    return r.group_filter.kind != "none" and (r.resample > 0 or r.group_filter.kind == "ema_std")


def group_filter(kind: str) -> dict[str, Any]:
    return {"kind": kind, "keep": 0.9, "decay": 0.1}


def dead_dropped(s: MoveContext) -> Iterator[Variant]:
    """Where groups without spread are seen, and it matters whether they are dropped."""
    if s.recipe.group_filter.kind == "none" and s.metric(DEAD, 1.0) > 0 and dead_groups_act(s.recipe):
        yield Variant(group_filter("zero_variance"), "zero_variance")


def another_filter(kind: str) -> Callable[[MoveContext], Iterable[Variant]]:
    return lambda s: [Variant(group_filter(kind), kind)] if s.recipe.group_filter.kind != kind else []


def scalings(s: MoveContext) -> Iterator[str]:
    """Other divisors; from the batch's to none only with a term beside the policy's against which the size of its
    gradient counts."""
    r = s.recipe
    if r.reward_scaling == "group":
        yield "batch"
    if r.reward_scaling == "group" or (r.reward_scaling == "batch" and (r.kl_beta > 0 or weighed_against(r))):
        yield "none"


def lighter_negatives(s: MoveContext) -> Iterator[float]:
    """A half, and the weight that balances both sides where that is less: only where most of the mass pushes down."""
    share = s.metric(NEGATIVE)
    if share <= PUSHES_DOWN or s.recipe.negative_weight != 1:
        return
    yield 0.5
    # 1 - share = weight * share
    if (balance := round((1 - share) / share, 2)) < 0.45:
        yield balance


def turns_credited(s: MoveContext) -> Iterator[Variant]:
    """A tenth and three tenths of weight on turn rewards: where episodes are long and differ little within groups."""
    r = s.recipe
    if "turn_rewards" not in s.offers or r.max_turns < LONG or r.credit.kind == "turn":
        return
    if s.metric(SPREAD, 1.0) <= NARROW or s.metric(DEAD) >= MANY_DEAD:
        yield from (Variant({"kind": "turn", "weight": w}, f"{w:g}") for w in (0.1, 0.3))


def temperatures(s: MoveContext, *steps: float) -> list[float]:
    return [round(s.recipe.temperature + x, 2) for x in steps if 0.55 <= s.recipe.temperature + x <= 1.5]


ROWS = (
    Factor(
        "group_filter",
        names={".kind": "filter_groups"},
        lint=(
            warning(
                lambda r: r.group_filter.kind == "zero_variance" and not dead_groups_act(r),
                "zero_variance drops groups whose advantages are 0 anyway: the gradient keeps its direction and grows, "
                "and AdamW divides its size out again; it acts with resample, kl_beta, entropy_bonus, sft_anchor or "
                "replay",
            ),
        ),
        moves=(
            Move(
                "filter_dead",
                dead_dropped,
                "groups without spread dilute the step's mean and the optimizer's statistics",
                "dead_groups; dead_training saturation",
            ),
            Move(
                "filter_ema",
                another_filter("ema_std"),
                "groups whose spread is far below the running mean carry mostly noise",
                "false_revival; dead_groups echo_trap",
            ),
            Move(
                "filter_snr",
                another_filter("snr_top_p"),
                "keeping the groups that hold most of the reward variance raises signal over noise",
                "template_collapse echo_trap; dead_groups false_revival",
            ),
        ),
        off="the filter may throw away rare but useful groups",
        off_addresses="; exploration_collapse",
        off_when=lambda r: r.group_filter.kind != "zero_variance" or dead_groups_act(r),
        replay="advantages",
        embedded=True,
        trl="dropped groups leave loss and normalisers",
        verl=TrainerSupport(
            {
                "trainer.v1.sampler.custom_sampler.path": lambda r: FILTER if own_sampler(r) else UNSET,
                "trainer.v1.sampler.custom_sampler.name": lambda r: "EvoReplayBuffer" if own_sampler(r) else UNSET,
            },
            "groups filtered out leave the loss in `evo_mean_norm`; with ema_std or resample a sampler of our own "
            "decides",
            f"{ADVANTAGE} evo_filter.py",
        ),
    ),
    Factor(
        "resample",
        lint=(
            error(
                lambda r: r.resample > 0 and r.group_filter.kind == "none",
                "resampling replaces filtered groups, but group_filter is none; choose a filter",
            ),
        ),
        moves=(
            Move(
                "resample",
                (1, 2),
                "sampling again in place of dropped groups keeps every step full of signal",
                "dead_groups saturation; dead_training",
            ),
        ),
        off="the extra sampling costs compute that more steps would use better",
        embedded=True,
        trl="further sampling rounds",
        verl=TrainerSupport(
            {"data.gen_batch_size": lambda r: 1 if own_sampler(r) and r.resample else UNSET},
            "the sampler draws new prompts for dropped groups, round by round; verl's own filter_groups has no "
            "bound on rounds and knows zero variance only",
            "evo_filter.py",
        ),
    ),
    Factor(
        "reward_scaling",
        names="norm_adv_by_std_in_grpo",
        meant={"true": "TRL's true is group", "false": "TRL's false is none"},
        moves=(
            Move(
                "other_scaling",
                scalings,
                "a tiny spread is no longer blown up to full size (Dr.GRPO)",
                "false_revival; length_gaming dead_groups",
            ),
        ),
        off="each group then pulls with equal strength",
        off_addresses="; dead_training",
        replay="advantages",
        embedded=True,
        trl=TrainerSupport(
            {"scale_rewards": "reward_scaling"},
            "advantages are computed before TRL sees the batch, over the kept groups; TRL's are the same",
        ),
        verl=TrainerSupport(
            {"algorithm.adv_estimator": lambda r: "evo_mean_norm"},
            "advantage estimator `evo_mean_norm`: centred by group; divided by the group's or batch's standard "
            "deviation + 1e-4, or not",
            ADVANTAGE,
        ),
    ),
    Factor(
        "negative_weight",
        lint=(
            warning(
                lambda r: r.negative_weight == 0, "nothing is unlearned: known to cost diversity (arXiv 2506.01347)"
            ),
        ),
        moves=(
            Move(
                "negative_weight",
                lighter_negatives,
                "longer failing attempts make most of |advantage| x tokens push down",
                "tool_misuse; policy_collapse abandonment",
            ),
        ),
        off="what fails is unlearned at full weight again",
        off_addresses="; exploration_collapse",
        embedded=True,
        trl="in the advantages, which TRL gets in place of its own",
        verl=TrainerSupport(note="in `evo_mean_norm`, after the division", plugins=ADVANTAGE),
    ),
    Factor(
        "credit",
        lint=(
            error(
                lambda r: r.credit.kind == "turn" and r.max_turns == 1,
                "an attempt of one turn has one credit; set credit to episode, or max_turns above 1",
            ),
        ),
        need=Need("turn_rewards", lambda r: r.credit.kind == "turn", "gives no rewards by turn; set it to episode"),
        moves=(
            Move(
                "credit_turns",
                turns_credited,
                "what a turn did by itself parts attempts that ended alike",
                "tool_misuse; dead_groups echo_trap",
            ),
        ),
        off="turn rewards pull at what the outcome does not ask",
        embedded=True,
        trl=refused("TRL has one advantage for a completion", "set it to episode", lambda r: r.credit.kind == "turn"),
        verl=refused(
            "our estimator has one advantage for an episode", "set it to episode", lambda r: r.credit.kind == "turn"
        ),
    ),
    Factor(
        "mask_truncated",
        names="mask_truncated_completions",
        moves=(Move("mask_truncated", (True,), "a cut-off answer says nothing about its content", "truncation"),),
        off="unpunished, running into the limit is free",
        off_addresses="; length_gaming",
        replay="advantages",
        embedded=True,
        trl="their tokens leave the loss, the rollouts stay in the normaliser",
        verl=refused(
            "which of several turns was cut is not known where the loss is masked",
            "set mask_truncated to false or max_turns to 1",
            lambda r: r.mask_truncated and r.max_turns > 1,
            "in `evo_mean_norm`: completions as long as they may be leave the loss (one turn only)",
            part=True,
            plugins=ADVANTAGE,
        ),
    ),
    Factor(
        "group_size",
        names="rollout_n rollouts_per_prompt num_return_sequences",
        moves=(
            Move(
                "bigger_groups",
                lambda s: [
                    Variant(round(s.recipe.group_size * x), f"x{x}") for x in (1.5, 2) if s.recipe.group_size <= 16
                ],
                "more attempts per task make a mixed group likelier and its mean steadier",
                "dead_groups low_spread; false_revival saturation",
            ),
            Move(
                "smaller_groups",
                lambda s: [Variant(s.recipe.group_size // 2, "half")] if s.recipe.group_size >= 8 else [],
                "fewer attempts per task cost less, and a group that is mixed anyway loses little",
            ),
        ),
        embedded=True,
        trl=TrainerSupport({"num_generations": "group_size"}, "rollouts per prompt"),
        verl=TrainerSupport({f"{ROLLOUT}.n": "group_size"}),
    ),
    Factor(
        "temperature",
        lint=(warning(lambda r: r.temperature < 0.3, "nearly greedy sampling leaves groups without spread"),),
        moves=(
            Move(
                "hotter",
                lambda s: temperatures(s, 0.15, 0.3),
                "more varied attempts put both outcomes into a group",
                "exploration_collapse entropy_collapse low_spread sharpening; dead_groups template_collapse saturation",
            ),
            Move(
                "cooler",
                lambda s: temperatures(s, -0.15),
                "fewer slips in the format leave more of the spread to the substance",
                "; tool_misuse echo_trap",
            ),
        ),
        embedded=True,
        trl=TrainerSupport({"temperature": "temperature"}),
        verl=TrainerSupport({f"{ROLLOUT}.temperature": "temperature"}),
    ),
    Factor(
        "top_p",
        moves=(
            Move("trim_nucleus", (0.95,), "the tail of the distribution mostly breaks the format", "; tool_misuse"),
        ),
        off="a truncated tail can never be learned from",
        off_addresses="exploration_collapse; off_policy_drift",
        embedded=True,
        trl=TrainerSupport({"top_p": "top_p"}, "log-probabilities are those before the cut"),
        verl=TrainerSupport({f"{ROLLOUT}.top_p": "top_p"}),
    ),
)

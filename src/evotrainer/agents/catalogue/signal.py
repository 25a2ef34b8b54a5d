"""Moves that change whether a group gives a gradient, and how strong it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evotrainer.agents.catalogue.values import DEAD, NEGATIVE, PUSHES_DOWN, SPREAD, of, when
from evotrainer.agents.moves import Move, Situation, Variant
from evotrainer.records.lint import dead_groups_act, weighed_against
from evotrainer.records.recipe import Recipe


def group_filter(kind: str, keep: float = 0.9) -> dict[str, Any]:
    return {"kind": kind, "keep": keep, "decay": 0.1}


def dead_dropped(s: Situation) -> Iterator[Variant]:
    """Where groups without spread are seen, and it matters whether they are dropped."""
    if s.recipe.group_filter.kind == "none" and s.metric(DEAD, 1.0) > 0 and dead_groups_act(s.recipe):
        yield Variant(group_filter("zero_variance"), "zero_variance,0.9,0.1")


def filters(r: Recipe) -> bool:
    """Is there a filter that a training notices?"""
    return r.group_filter.kind != "none" and (r.group_filter.kind != "zero_variance" or dead_groups_act(r))


def sized(r: Recipe) -> bool:
    """Batch scaling, with a term beside the policy's against which the size of its gradient counts."""
    return r.reward_scaling == "batch" and (r.kl_beta > 0 or weighed_against(r))


def more_smaller_groups(s: Situation) -> Iterator[Variant]:
    """Groups of half the size, at least 4, of twice the prompts: unless nearly all groups are dead already."""
    r = s.recipe
    if r.group_size >= 8 and r.group_size % 2 == 0 and s.metric(DEAD) <= 0.8:
        shape = {"prompts_per_step": 2 * r.prompts_per_step, "group_size": r.group_size // 2, "steps": r.steps}
        yield Variant(shape, f"{shape['prompts_per_step']}x{shape['group_size']}")


def smaller_batches(s: Situation) -> Iterator[Variant]:
    """Twice the steps of half the attempts: groups of half the size, at least 4, or half the prompts, at least 8."""
    r = s.recipe
    if r.phases:
        return
    shape = {"prompts_per_step": r.prompts_per_step, "group_size": r.group_size, "steps": 2 * r.steps}
    if r.group_size >= 8 and r.group_size % 2 == 0 and s.metric(DEAD) <= 0.8:
        yield Variant(shape | {"group_size": r.group_size // 2}, f"{r.group_size // 2} attempts, x2")
    if r.prompts_per_step >= 16 and r.prompts_per_step % 2 == 0:
        yield Variant(shape | {"prompts_per_step": r.prompts_per_step // 2}, f"{r.prompts_per_step // 2} prompts, x2")


def lighter_negatives(s: Situation) -> Iterator[Variant]:
    """A half, and the weight that balances both sides where that is less: only where most of the mass pushes down."""
    share = s.metric(NEGATIVE)
    if share <= PUSHES_DOWN or s.recipe.negative_weight != 1:
        return
    yield Variant(0.5, "0.5")
    # 1 - share = weight * share
    if (balance := round((1 - share) / share, 2)) < 0.45:
        yield Variant(balance, f"{balance:g}")


def turns_credited(s: Situation) -> Iterator[Variant]:
    """A tenth and three tenths of weight on turn rewards: where episodes are long and differ little within groups."""
    r = s.recipe
    if "turn_rewards" not in s.offers or r.max_turns < LONG or r.credit.kind == "turn":
        return
    if s.metric(SPREAD, 1.0) <= NARROW or s.metric(DEAD) >= MANY_DEAD:
        yield from (Variant({"kind": "turn", "weight": w}, f"{w:g}") for w in (0.1, 0.3))


LONG = 4
"""Turns from which it matters which of them is credited."""
NARROW, MANY_DEAD = 0.2, 0.4
"""Spread within groups, and share of dead groups, from which turn rewards are offered."""
SIGNAL: tuple[Move, ...] = (
    Move(
        "filter_dead",
        "group_filter",
        "signal",
        {"dead_groups": 0.5, "dead_training": 0.2, "saturation": 0.3},
        of(dead_dropped),
        "groups without spread dilute the step's mean and the optimizer's statistics",
        DEAD,
        "down",
        0.02,
    ),
    Move(
        "filter_ema",
        "group_filter",
        "signal",
        {"dead_groups": 0.4, "false_revival": 0.5, "echo_trap": 0.3},
        when(lambda r: r.group_filter.kind != "ema_std", group_filter("ema_std")),
        "groups whose spread is far below the running mean carry mostly noise",
        SPREAD,
        "up",
        0.01,
    ),
    Move(
        "filter_snr",
        "group_filter",
        "signal",
        {"template_collapse": 0.7, "echo_trap": 0.6, "dead_groups": 0.4, "false_revival": 0.4},
        when(lambda r: r.group_filter.kind != "snr_top_p", group_filter("snr_top_p")),
        "keeping the groups that hold most of the reward variance raises signal over noise",
        SPREAD,
        "up",
        0.01,
    ),
    Move(
        "filter_none",
        "group_filter",
        "signal",
        {"exploration_collapse": 0.2},
        when(lambda r: r.resample == 0 and filters(r), group_filter("none")),
        "the filter may throw away rare but useful groups",
        subtracts=True,
    ),
    Move(
        "resample",
        "resample",
        "signal",
        {"dead_groups": 0.8, "dead_training": 0.4, "saturation": 0.6},
        when(lambda r: r.group_filter.kind != "none" and r.resample == 0, 1, 2),
        "sampling again in place of dropped groups keeps every step full of signal",
        DEAD,
        "down",
        0.05,
        cost=1.4,
    ),
    Move(
        "resample_off",
        "resample",
        "signal",
        {},
        when(lambda r: r.resample > 0, 0),
        "the extra sampling costs compute that more steps would use better",
        subtracts=True,
        cost=0.8,
    ),
    Move(
        "bigger_groups",
        "group_size",
        "signal",
        {"dead_groups": 0.6, "false_revival": 0.2, "saturation": 0.2},
        of(
            lambda s: [
                Variant(round(s.recipe.group_size * x), f"x{x}", x) for x in (1.5, 2) if s.recipe.group_size <= 16
            ]
        ),
        "more attempts per task make a mixed group likelier and its mean steadier",
        DEAD,
        "down",
        0.05,
    ),
    Move(
        "more_smaller_groups",
        "batch_shape",
        "signal",
        {"echo_trap": 0.2, "saturation": 0.1},
        of(more_smaller_groups),
        "at equal sampling, other tasks tell a step more than further attempts at the same ones",
        base=0.005,
    ),
    Move(
        "smaller_batches",
        "batch_shape",
        "signal",
        {"dead_training": 0.1},
        of(smaller_batches),
        "at equal sampling, twice as many steps move the policy farther, each on a noisier gradient",
        # by hand: repositories +7, +10 and +15 points by shape, maths and (at equal compute) code nothing (LOG.md)
        base=0.03,
        idle_sd=0.05,
    ),
    Move(
        "smaller_groups",
        "group_size",
        "signal",
        {},
        of(lambda s: [Variant(s.recipe.group_size // 2, "half", 0.6)] if s.recipe.group_size >= 8 else []),
        "fewer attempts per task cost less, and a group that is mixed anyway loses little",
        subtracts=True,
    ),
    Move(
        "scale_by_batch",
        "reward_scaling",
        "signal",
        {"false_revival": 0.5, "dead_groups": 0.1},
        when(lambda r: r.reward_scaling == "group", "batch"),
        "a tiny spread is no longer blown up to full size",
    ),
    Move(
        "scale_none",
        "reward_scaling",
        "signal",
        {"false_revival": 0.6, "length_gaming": 0.1},
        # one divisor for a whole step is the size of its gradient
        when(lambda r: r.reward_scaling == "group" or sized(r), "none"),
        "dividing by the group's spread overweights nearly uniform groups (Dr.GRPO)",
        subtracts=True,
    ),
    Move(
        "scale_by_group",
        "reward_scaling",
        "signal",
        {"dead_training": 0.3},
        when(lambda r: r.reward_scaling != "group", "group"),
        "each group then pulls with equal strength",
    ),
    Move(
        "negative_weight",
        "negative_weight",
        "signal",
        {"tool_misuse": 0.5, "policy_collapse": 0.4, "abandonment": 0.3},
        of(lighter_negatives),
        "longer failing attempts make most of |advantage| x tokens push down",
        NEGATIVE,
        "down",
        0.05,
        base=0.03,
        idle_sd=0.03,
        sd=0.06,
        gain=0.08,
    ),
    Move(
        "negative_weight_off",
        "negative_weight",
        "signal",
        {"exploration_collapse": 0.3},
        when(lambda r: r.negative_weight != 1, 1.0),
        "what fails is unlearned at full weight again",
        subtracts=True,
    ),
    Move(
        "credit_turns",
        "credit",
        "signal",
        {"tool_misuse": 0.5, "dead_groups": 0.4, "echo_trap": 0.3},
        of(turns_credited),
        "what a turn did by itself parts attempts that ended alike",
        sd=0.03,
    ),
    Move(
        "credit_episodes",
        "credit",
        "signal",
        {},
        when(lambda r: r.credit.kind == "turn", {"kind": "episode"}),
        "turn rewards pull at what the outcome does not ask",
        subtracts=True,
    ),
    Move(
        "hotter",
        "temperature",
        "signal",
        {"exploration_collapse": 0.7, "dead_groups": 0.4, "template_collapse": 0.2, "saturation": 0.2},
        of(lambda s: [round(s.recipe.temperature + x, 2) for x in (0.15, 0.3) if s.recipe.temperature + x <= 1.5]),
        "more varied attempts put both outcomes into a group",
        "entropy",
        "up",
        0.02,
    ),
    Move(
        "cooler",
        "temperature",
        "signal",
        {"tool_misuse": 0.3, "echo_trap": 0.2},
        of(lambda s: [round(s.recipe.temperature - 0.15, 2)] if s.recipe.temperature > 0.7 else []),
        "fewer slips in the format leave more of the spread to the substance",
    ),
    Move(
        "full_nucleus",
        "top_p",
        "signal",
        {"exploration_collapse": 0.5, "off_policy_drift": 0.4},
        when(lambda r: r.top_p < 1, 1.0),
        "a truncated tail can never be learned from",
        subtracts=True,
    ),
    Move(
        "trim_nucleus",
        "top_p",
        "signal",
        {"tool_misuse": 0.3},
        when(lambda r: r.top_p > 0.95, 0.95),
        "the tail of the distribution mostly breaks the format",
        base=-0.01,
    ),
    Move(
        "entropy_bonus",
        "entropy_bonus",
        "signal",
        {"exploration_collapse": 0.7, "echo_trap": 0.2, "template_collapse": 0.2},
        when(lambda r: r.entropy_bonus == 0, 0.003, 0.01),
        "paying for entropy keeps alternatives alive",
        "entropy",
        "up",
        0.02,
    ),
    Move(
        "entropy_bonus_off",
        "entropy_bonus",
        "signal",
        {"tool_misuse": 0.2},
        when(lambda r: r.entropy_bonus != 0, 0.0),
        "the bonus may drown the reward",
        subtracts=True,
    ),
)

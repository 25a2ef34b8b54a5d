"""Moves that change how the gradient is taken: loss, clipping, KL, learning rate, passes, ratio cap."""

from __future__ import annotations

from collections.abc import Iterator

from evotrainer.agents.catalogue.values import LENGTH, Values, of, when
from evotrainer.agents.moves import Move, Situation, Variant
from evotrainer.records.lint import weighed_against
from evotrainer.records.recipe import Recipe


def many_passes(r: Recipe) -> bool:
    """With one pass per step the ratio stays 1, so that clip range and ratio level do nothing."""
    return r.updates_per_step > 1


def scaled_lr(scale: float) -> Values:
    return of(lambda s: [float(f"{s.recipe.lr * scale:.3g}")] if s.recipe.lr * scale <= 1e-3 else [])


def averages(s: Situation) -> Iterator[Variant]:
    """Mean of the last half and quarter, exponential mean: where the training score no longer rises in its last
    half."""
    gain = s.metrics.get("late_gain")
    if s.recipe.averaging.kind != "none" or gain is None or gain > 0.05:
        return
    yield Variant({"kind": "tail_mean", "share": 0.5}, "last half")
    yield Variant({"kind": "tail_mean", "share": 0.25}, "last quarter")
    yield Variant({"kind": "ema", "decay": 0.9}, "ema 0.9")


def high_then_zero(s: Situation) -> Iterator[Variant]:
    """2 and 3 times the rate, falling linearly to 0: only from a constant rate under which nothing collapses.

    A collapsed policy or collapsed entropy says that the rate is high already.
    """
    r = s.recipe
    if r.schedule.kind != "constant" or s.symptoms.get("policy_collapse") or s.symptoms.get("entropy_collapse"):
        return
    for x in (2, 3):
        if r.lr * x <= 1e-3:
            value = {"lr": float(f"{r.lr * x:.3g}"), "schedule": {"kind": "linear", "warmup": r.schedule.warmup}}
            yield Variant(value, f"x{x} linear")


ALGORITHM: tuple[Move, ...] = (
    Move(
        "token_level_loss",
        "loss",
        "algorithm",
        {"length_gaming": 0.6, "truncation": 0.2, "echo_trap": 0.2},
        when(lambda r: r.loss == "grpo", "dapo"),
        "every token counts the same, so long wrong answers are punished fully",
        LENGTH,
        "down",
        1.0,
        base=0.0,
    ),
    Move(
        "no_length_bias",
        "loss",
        "algorithm",
        {"length_gaming": 0.5, "false_revival": 0.2},
        # dapo divides by the step's tokens, dr_grpo by a constant: alone, that is the size of one gradient
        when(lambda r: r.loss in ("grpo", "bnpo") or (r.loss == "dapo" and weighed_against(r)), "dr_grpo"),
        "dividing by the answer's own length rewards long wrong answers (Dr.GRPO)",
        LENGTH,
        "down",
        1.0,
    ),
    Move(
        "sequence_ratio",
        "loss",
        "algorithm",
        {"off_policy_drift": 0.6, "echo_trap": 0.3},
        when(lambda r: r.loss != "gspo" and many_passes(r), "gspo"),
        "one ratio per sequence has less variance than one per token (GSPO)",
        "ratio_max",
        "down",
        0.1,
    ),
    Move(
        "keep_all_gradients",
        "loss",
        "algorithm",
        {"exploration_collapse": 0.4},
        when(lambda r: r.loss != "cispo" and many_passes(r), "cispo"),
        "clipping the weight instead of the gradient keeps rare tokens learning (CISPO)",
    ),
    Move(
        "clip_higher",
        "clip",
        "algorithm",
        {"exploration_collapse": 0.6, "echo_trap": 0.4, "template_collapse": 0.2},
        of(
            lambda s: (
                [{"low": s.recipe.clip.low, "high": 0.28}]
                if many_passes(s.recipe) and s.recipe.clip.high < 0.28
                else []
            )
        ),
        "unlikely but good tokens may grow further (DAPO)",
        "entropy",
        "up",
        0.02,
    ),
    Move(
        "clip_tighter",
        "clip",
        "algorithm",
        {"off_policy_drift": 0.5},
        of(lambda s: [{"low": 0.1, "high": 0.1}] if many_passes(s.recipe) and s.recipe.clip.high > 0.1 else []),
        "smaller steps stay where the samples came from",
        "kl",
        "down",
        0.01,
    ),
    Move(
        "kl_off",
        "kl_beta",
        "algorithm",
        {"exploration_collapse": 0.4, "echo_trap": 0.3, "dead_training": 0.3},
        when(lambda r: r.kl_beta > 0, 0.0),
        "the start policy is no longer worth staying close to",
        subtracts=True,
        cost=0.85,
        base=0.0,
    ),
    Move(
        "kl_on",
        "kl_beta",
        "algorithm",
        {
            "policy_collapse": 0.5,
            "template_collapse": 0.3,
            "efficiency_collapse": 0.3,
            "proxy_gap": 0.2,
            "laziness": 0.2,
            "length_gaming": 0.2,
        },
        when(lambda r: r.kl_beta == 0, 0.02),
        "staying near the start policy limits what an imperfect reward can spoil",
        "kl",
        "down",
        0.01,
        cost=1.2,
    ),
    Move(
        "lower_lr",
        "lr",
        "algorithm",
        {
            "policy_collapse": 0.9,
            "off_policy_drift": 0.4,
            "echo_trap": 0.4,
            "exploration_collapse": 0.4,
            "template_collapse": 0.3,
        },
        scaled_lr(0.5),
        "smaller steps keep the policy from collapsing",
        "entropy",
        "up",
        0.02,
    ),
    Move(
        "higher_lr",
        "lr",
        "algorithm",
        {"dead_training": 0.4},
        scaled_lr(1.5),
        "the policy may still be learning too slowly",
        base=0.005,
    ),
    Move(
        "decay_lr",
        "schedule",
        "algorithm",
        {"echo_trap": 0.2, "off_policy_drift": 0.2},
        of(
            lambda s: [
                {"kind": k, "warmup": s.recipe.schedule.warmup}
                for k in ("linear", "cosine")
                if s.recipe.schedule.kind == "constant"
            ]
        ),
        "large steps first, small steps last average out the noise",
        base=0.003,
    ),
    Move(
        "high_then_zero",
        "lr_schedule",
        "algorithm",
        {"dead_training": 0.3},
        of(high_then_zero),
        "a rate too high to stay at learns fast, and falling to 0 averages its noise out again",
        base=0.005,
    ),
    Move(
        "average_weights",
        "averaging",
        "algorithm",
        {"policy_collapse": 0.2},
        of(averages),
        "the last steps move the weights to and fro; their mean lies in the middle",
        base=0.005,
    ),
    Move(
        "average_off",
        "averaging",
        "algorithm",
        {},
        when(lambda r: r.averaging.kind != "none", {"kind": "none"}),
        "an average lags behind weights that still get better",
        subtracts=True,
    ),
    Move(
        "constant_lr",
        "schedule",
        "algorithm",
        {},
        of(
            lambda s: (
                [{"kind": "constant", "warmup": s.recipe.schedule.warmup}]
                if s.recipe.schedule.kind != "constant"
                else []
            )
        ),
        "the last steps are wasted at a vanishing rate",
        subtracts=True,
    ),
    Move(
        "weight_decay",
        "weight_decay",
        "algorithm",
        {"template_collapse": 0.1},
        when(lambda r: r.weight_decay == 0, 0.01),
        "decay keeps weights small",
    ),
    Move(
        "weight_decay_off",
        "weight_decay",
        "algorithm",
        {},
        when(lambda r: r.weight_decay > 0, 0.0),
        "decay fights the warm start",
        subtracts=True,
    ),
    Move(
        "clip_gradient",
        "grad_clip",
        "algorithm",
        {"echo_trap": 0.4, "off_policy_drift": 0.2, "policy_collapse": 0.4},
        when(lambda r: r.grad_clip > 0.3, 0.3),
        "spikes of the gradient come before a collapse",
        "grad_norm",
        "down",
        0.1,
    ),
    Move(
        "more_steps",
        "steps",
        "algorithm",
        {},
        of(lambda s: [Variant(round(s.recipe.steps * 1.5), "x1.5", 1.5)]),
        "the score may still be rising at the last step",
        base=0.01,
    ),
    Move(
        "more_passes",
        "updates_per_step",
        "algorithm",
        {"dead_training": 0.2},
        when(lambda r: r.updates_per_step == 1, 2, cost=1.3),
        "a sample teaches more when it is used twice, and sampling costs most",
        base=0.005,
    ),
    Move(
        "one_pass",
        "updates_per_step",
        "algorithm",
        {"off_policy_drift": 0.7, "echo_trap": 0.3},
        when(lambda r: r.updates_per_step > 1, 1, cost=0.8),
        "one pass stays on the samples' own policy",
        "ratio_max",
        "down",
        0.1,
        subtracts=True,
    ),
    Move(
        "cap_ratio",
        "is_cap",
        "algorithm",
        {"off_policy_drift": 0.9},
        when(lambda r: r.is_cap is None, 2.0),
        "a capped trainer/sampler ratio bounds the bias of stale samples (TIS)",
        "ratio_max",
        "down",
        0.1,
    ),
    Move(
        "uncap_ratio",
        "is_cap",
        "algorithm",
        {},
        when(lambda r: r.is_cap is not None, None),
        "nothing drifts, so the cap only biases",
        subtracts=True,
    ),
)

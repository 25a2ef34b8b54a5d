"""Single-factor changes: validity, and the values each factor may sensibly take."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from evotrainer.errors import ConfigError, SingleFactorError
from evotrainer.records.briefing import Briefing
from evotrainer.records.lint import lint
from evotrainer.records.one_factor import single_factor
from evotrainer.records.recipe import CHAMPION, Recipe, fields_of


def changed(recipe: Recipe, factor: str, new: Any) -> Recipe | None:
    """The recipe with the factor set; None where that is no valid, lint-clean change of exactly this factor."""
    try:
        child = recipe.with_factor(factor, new)
        if single_factor(recipe, child) != factor:
            return None
    except (ConfigError, SingleFactorError):
        return None
    return None if any(i.level == "error" for i in lint(child)) else child


def tried(briefing: Briefing) -> set[str]:
    """Hashes of every recipe the run has trained: training one again would show nothing new."""
    return {b.recipe.hash for b in briefing.branches} | {briefing.champion.recipe.hash}


def repeated(briefing: Briefing, factor: str, new: Any) -> tuple[str, str] | None:
    """(branch, assumption) where this value of the factor was tried before: what a proposal must cite to try it again.

    The assumption is empty where none changed since: then it cannot be tried. None: it is new.
    """
    earlier = [
        b.branch
        for b in briefing.branches
        if b.intervention is not None and b.intervention.factor == factor and same(b.recipe.value(factor), new)
    ]
    if not earlier:
        return None
    own = {f"recipe.{f}" for f in fields_of(factor)}
    since = [x for x in briefing.reopenable.get(earlier[-1], ()) if x not in own]
    return earlier[-1], next(iter(since), "")


def same(a: Any, b: Any) -> bool:
    """Equality of two JSON values."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def knob_values(text: str) -> list[Any]:
    """Allowed values of a knob from its description: comma-separated, up to the first `:`."""
    return [_literal(x.strip()) for x in text.split(":", 1)[0].split(",") if x.strip()]


def _literal(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def knob_changes(recipe: Recipe, knobs: Mapping[str, str]) -> dict[str, list[Any]]:
    """`knobs.<name>` -> allowed values other than the current one (the default is first)."""
    out: dict[str, list[Any]] = {}
    for name, text in sorted(knobs.items()):
        values = knob_values(text)
        if values:
            now = recipe.knobs.get(name, values[0])
            out[f"knobs.{name}"] = [v for v in values if v != now]
    return out


def reward_changes(
    rewards: Mapping[str, float], offered: Collection[str], negative: Collection[str] = ()
) -> dict[str, dict[str, float]]:
    """Every elementary move in the reward composition: signature -> new composition.

    Replace, add (at a tenth, half and all of the present total), remove, and re-weight each component; components in
    `negative` are offered as penalties. Re-weighting a lone component is left out: normalisation would undo it.
    """
    paid = {k: w for k, w in sorted(rewards.items()) if w}
    total = sum(abs(w) for w in paid.values()) or 1.0
    spare = sorted(set(offered) - paid.keys())
    out: dict[str, dict[str, float]] = {}
    for q in spare:
        sign = -1.0 if q in negative else 1.0
        for share in (0.1, 0.5, 1.0):
            out[f"add_reward {q}*{sign * share:g}"] = paid | {q: round(sign * share * total, 6)}
        if q in negative:
            continue
        for p, w in paid.items():
            out[f"replace_reward {p}->{q}"] = {k: x for k, x in paid.items() if k != p} | {q: w}
    if len(paid) > 1:
        for p, w in paid.items():
            out[f"remove_reward {p}"] = {k: x for k, x in paid.items() if k != p}
            for scale in (0.5, 2.0):
                out[f"reweight_reward {p}*{scale:g}"] = paid | {p: round(scale * w, 6)}
    return out


def lr_schedules(r: Recipe) -> list[dict[str, Any]]:
    """A higher rate that falls to 0."""
    rates = [lr for x in (2.0, 3.0) if (lr := float(f"{r.lr * x:.3g}")) <= 1e-3]
    kinds = [kind for kind in ("linear", "cosine") if kind != r.schedule.kind]
    return [{"lr": lr, "schedule": {"kind": kind, "warmup": r.schedule.warmup}} for lr in rates for kind in kinds]


def batch_shapes(r: Recipe) -> list[dict[str, int]]:
    """The same number of rollouts shared out otherwise: half or twice the group for twice or half the prompts or
    steps."""

    def shape(prompts: int, group: int, steps: int) -> dict[str, int]:
        return {"prompts_per_step": prompts, "group_size": group, "steps": steps}

    p, g, n = r.prompts_per_step, r.group_size, r.steps
    made = []
    if g >= 4 and g % 2 == 0:
        made += [shape(2 * p, g // 2, n), shape(p, g // 2, 2 * n)]
    if p % 2 == 0:
        made += [shape(p // 2, 2 * g, n), shape(p // 2, g, 2 * n)]
    if n % 2 == 0:
        made += [shape(p, 2 * g, n // 2), shape(2 * p, g, n // 2)]
    return made


def sources(r: Recipe, tags: Collection[str], offers: Collection[str]) -> dict[str, list[Any]]:
    """Factors that say what is learnt from: which policy, which tasks, which texts."""
    rl = {"kind": "rl"}
    first = [n for n in (r.steps // 6, r.steps // 3) if n]
    on = {max(1, int(0.4 * r.whole_steps))} - {r.steps}
    return {
        "start": [None if r.start else CHAMPION],
        "continuation": [{"start": CHAMPION, "steps": n, "phases": []} for n in on],
        "curriculum": [
            {"kind": "none", "low": 0.05, "high": 0.95},
            {"kind": "pass_rate_band", "low": 0.05, "high": 0.95},
            {"kind": "pass_rate_band", "low": 0.1, "high": 0.9},
            *({"kind": "tag_frontier", "tag": t, "low": 0.05, "high": 0.95} for t in sorted(tags)),
        ],
        "replay": [{"weight": w, "batch": 32, "size": 512, "rare": 0.5} for w in (0.0, 0.1, 0.3)],
        "credit": [
            {"kind": "episode", "weight": 0.1},
            *({"kind": "turn", "weight": w} for w in (0.1, 0.3) if "turn_rewards" in offers),
        ],
        "prompt_noise": [0.0, 0.5, 1.0] if "wordings" in offers else [],
        "phases": [[], *([{"kind": "own", "steps": n}, rl] for n in first)],
        "phase_plan": [plan for plan, _ in reference_plans(r)] if "references" in offers else [],
    }


def reference_plans(r: Recipe) -> Iterator[tuple[dict[str, Any], float]]:
    """(phases and steps, compute as a multiple of the recipe's): references first, at the recipe's rate and at 2.5
    times it, then RL at a third of it, since a rate at which a policy learns from rewards may undo what it was shown.

    In the place of three fifths and nine tenths of the RL steps at equal compute; beside all of them at 1.3, 2 and 4
    times.
    """
    if r.phases:
        return
    # a text beside an attempt: its tokens are few, but all are learnt from; an attempt of many turns is mostly tools
    text = 2.0 if r.max_turns == 1 else 1.0
    per_step = r.prompts_per_step * r.group_size / (TEXTS * text)
    shares = [(s, 1 - s, 1.0) for s in (0.6, 0.9)] + [(x, 1.0, 1 + x) for x in (0.3, 1.0, 3.0)]
    for taught, rest, cost in shares:
        n, rl = max(1, round(taught * r.steps * per_step)), max(1, round(rest * r.steps))
        for times in (1.0, 2.5):
            first = {"kind": "references", "steps": n, "batch": TEXTS}
            parts = [first | ({"lr": rate(r.lr, times)} if times != 1 else {}), {"kind": "rl", "lr": rate(r.lr, 1 / 3)}]
            yield {"phases": parts, "steps": n + rl}, cost


def rate(lr: float, times: float) -> float:
    """A multiple of a learning rate, two digits."""
    return float(f"{lr * times:.2g}")


TEXTS = 32
"""Of a step on references: four times as many cost little more than twice as much (LOG.md, 2026-11-24)."""


def neighbourhood(
    recipe: Recipe,
    components: Collection[str],
    knobs: Mapping[str, str],
    tags: Collection[str] = (),
    offers: Collection[str] = (),
) -> dict[str, list[Any]]:
    """Factor -> candidate values: a fixed grid around what practice uses. The space a random search draws from.

    `tags`: those of the tasks, as far as a reading showed them. `offers`: what the environment has for training.
    """
    r = recipe
    grid: dict[str, list[Any]] = {
        "loss": ["grpo", "dapo", "dr_grpo", "bnpo", "gspo", "cispo"],
        "clip": [{"low": 0.2, "high": h} for h in (0.2, 0.24, 0.28, 0.4)] + [{"low": 0.1, "high": 0.1}],
        "kl_beta": [0.0, 0.005, 0.02, 0.04, 0.1],
        "reward_scaling": ["group", "batch", "none"],
        "negative_weight": [0.25, 0.5, 1.0, 2.0],
        "lr": [float(f"{r.lr * x:.3g}") for x in (0.33, 0.5, 0.7, 1.4, 2.0, 3.0) if r.lr * x <= 1e-3],
        "schedule": [{"kind": k, "warmup": r.schedule.warmup} for k in ("constant", "linear", "cosine")],
        "weight_decay": [0.0, 0.01, 0.1],
        "grad_clip": [0.2, 0.5, 1.0, 2.0],
        "steps": [max(1, round(r.steps * x)) for x in (0.67, 1.5)],
        "prompts_per_step": [max(1, round(r.prompts_per_step * x)) for x in (0.5, 1.5, 2)],
        "group_size": [max(2, round(r.group_size * x)) for x in (0.5, 1.5, 2)],
        "updates_per_step": [1, 2, 4],
        "temperature": [0.7, 0.85, 1.0, 1.15, 1.3],
        "top_p": [0.9, 0.95, 1.0],
        "max_tokens": [max(1, round(r.max_tokens * x)) for x in (0.75, 1.25, 1.5)],
        "max_turns": [r.max_turns - 2, r.max_turns + 2] if r.max_turns > 2 else [],
        "rewards": list(reward_changes(r.rewards, components).values()),
        "length": [
            {"kind": "none", "weight": 0.0, "soft": 0.75},
            {"kind": "overlong", "weight": 0.5, "soft": 0.75},
            {"kind": "correct_bonus", "weight": 0.1, "soft": 0.75},
            {"kind": "token_penalty", "weight": round(0.2 / r.max_tokens, 6), "soft": 0.75},
        ],
        "repetition_penalty": [0.0, 0.1, 0.3],
        "group_filter": [
            {"kind": k, "keep": 0.9, "decay": 0.1} for k in ("none", "zero_variance", "ema_std", "snr_top_p")
        ],
        "resample": [0, 1, 2],
        "averaging": [
            {"kind": "none", "share": 0.5, "decay": 0.9},
            *({"kind": "tail_mean", "share": x, "decay": 0.9} for x in (0.5, 0.25)),
            {"kind": "ema", "share": 0.5, "decay": 0.9},
        ],
        "lr_schedule": lr_schedules(r),
        "batch_shape": batch_shapes(r),
        "sft_anchor": [0.0, *((0.05, 0.2) if "demonstrations" in offers else ())],
        "entropy_bonus": [0.0, 0.003, 0.01],
        "is_cap": [None, 2.0, 5.0],
        "mask_truncated": [False, True],
    }
    grid |= sources(r, tags, offers) | knob_changes(recipe, knobs)
    other = {factor: [v for v in values if not same(v, recipe.value(factor))] for factor, values in grid.items()}
    return {factor: values for factor, values in other.items() if values}

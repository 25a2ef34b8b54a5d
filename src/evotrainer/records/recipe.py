"""The recipe: the complete, immutable, hashed description of one training run.

One top-level field is one *factor*; `knobs` contributes one factor per key. A branch changes exactly one factor
(`single_factor`), computed from the two recipes themselves, never from what an agent declares.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from evotrainer.errors import ConfigError, SingleFactorError
from evotrainer.records.frozen import Frozen, explain

Knob = bool | int | float | str

BUNDLE = "bundle"
"""Name of the factor of an intervention that changes several factors at once; its value maps each to its own."""


class Schedule(Frozen):
    """Learning-rate schedule: linear warm-up over `warmup` steps, then constant, linear to 0 or cosine to 0."""

    kind: Literal["constant", "linear", "cosine"] = "constant"
    warmup: int = Field(5, ge=0)


class GroupFilter(Frozen):
    """Which groups of a step give gradient (METHOD.md section 2 and 5).

    `zero_variance` drops groups without reward spread; `ema_std` also drops std < ema_mean - z*ema_std with z from
    `keep` (decay 0.1, warm-up max(20, 1/decay) groups); `snr_top_p` keeps the groups of largest reward variance
    that hold the share `keep` of the total (RAGEN-2).
    """

    kind: Literal["none", "zero_variance", "ema_std", "snr_top_p"] = "none"
    keep: float = Field(0.9, gt=0, le=1)
    decay: float = Field(0.1, gt=0, le=1)


class LengthRule(Frozen):
    """Reward shaping by completion length.

    `token_penalty`: reward - weight * tokens. `overlong`: DAPO's soft penalty, 0 up to `soft` * max_tokens, falling
    linearly to -weight at max_tokens. `correct_bonus`: weight * (1 - tokens/max_tokens) times the reward the recipe's
    own components give (at least 0): right by the recipe's own measure, so that no rule sees a truth the recipe does
    not pay for.
    """

    kind: Literal["none", "token_penalty", "overlong", "correct_bonus"] = "none"
    weight: float = Field(0.0, ge=0)
    soft: float = Field(0.75, gt=0, lt=1)


class Curriculum(Frozen):
    """Draw training tasks whose running pass rate lies in [low, high]; unseen tasks always qualify."""

    kind: Literal["none", "pass_rate_band"] = "none"
    low: float = Field(0.05, ge=0, le=1)
    high: float = Field(0.95, ge=0, le=1)

    @model_validator(mode="after")
    def _band(self) -> Curriculum:
        if self.low >= self.high:
            raise ValueError("curriculum.low must be below curriculum.high")
        return self


class Clip(Frozen):
    """PPO ratio clip range [1-low, 1+high]. For cispo, `high` caps the detached weight at 1+high."""

    low: float = Field(0.2, ge=0, le=1)
    high: float = Field(0.2, ge=0)


class Recipe(Frozen):
    """All factors of a training run; the same names for every trainer (DESIGN.md section 4)."""

    loss: Literal["grpo", "dapo", "dr_grpo", "bnpo", "gspo", "cispo"] = "grpo"
    clip: Clip = Clip()
    kl_beta: float = Field(0.0, ge=0)
    """Weight of the k3 KL estimate against the start policy."""
    reward_scaling: Literal["group", "batch", "none"] = "group"
    """What the centred reward is divided by."""
    lr: float = Field(2e-4, gt=0)
    schedule: Schedule = Schedule()
    weight_decay: float = Field(0.0, ge=0)
    grad_clip: float = Field(1.0, gt=0)
    """Global gradient-norm bound."""
    steps: int = Field(30, ge=1)
    """Optimizer rounds: sample, grade, update."""
    prompts_per_step: int = Field(32, ge=1)
    group_size: int = Field(8, ge=2)
    """Rollouts per prompt."""
    updates_per_step: int = Field(1, ge=1)
    """Passes over each step's rollouts (the ratio leaves 1 from the second on)."""
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(96, ge=1)
    """Completion tokens per turn."""
    max_turns: int = Field(1, ge=1)
    rewards: Mapping[str, float] = Field(default_factory=dict)
    """Reward component -> weight; the reward is the weighted sum."""
    length: LengthRule = LengthRule()
    repetition_penalty: float = Field(0.0, ge=0)
    """Subtracted times the share of repeated 4-grams in the completion."""
    group_filter: GroupFilter = GroupFilter()
    resample: int = Field(0, ge=0)
    """Extra sampling rounds that replace groups the filter dropped (DAPO dynamic sampling); 0: off."""
    curriculum: Curriculum = Curriculum()
    sft_anchor: float = Field(0.0, ge=0)
    """Weight of the SFT loss on demonstrations, added to each update."""
    entropy_bonus: float = 0.0
    """Weight of the mean token entropy, added to the objective."""
    is_cap: float | None = Field(None, gt=0)
    """Cap of the trainer/sampler importance ratio (TIS); None: off."""
    mask_truncated: bool = False
    """Leave truncated completions (finish = length) out of the loss."""
    knobs: Mapping[str, Knob] = Field(default_factory=dict)
    """Environment knobs; each key is a factor of its own, named `knobs.<key>`."""

    def canonical(self) -> str:
        """Canonical JSON: sorted keys, no blanks."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    @property
    def hash(self) -> str:
        """16 hex digits of SHA-256 over the canonical JSON."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:16]

    def factors(self) -> dict[str, Any]:
        """Factor name -> JSON value."""
        d = self.model_dump(mode="json")
        knobs = d.pop("knobs")
        return d | {f"knobs.{k}": v for k, v in knobs.items()}

    def with_factor(self, factor: str, value: Any) -> Recipe:
        """A copy with one factor set; raises ConfigError for an unknown factor or a bad value."""
        d = self.model_dump(mode="json")
        if factor == BUNDLE:
            return self.with_changes(value)
        if factor.startswith("knobs."):
            key = factor.removeprefix("knobs.")
            if value is None:
                d["knobs"].pop(key, None)
            else:
                d["knobs"][key] = value
        elif factor in type(self).model_fields and factor != "knobs":
            d[factor] = value
        else:
            raise ConfigError(
                f"unknown recipe factor {factor!r}; one of: {', '.join(sorted(self.factors()))}, knobs.<name>"
            )
        return parse_recipe(d)

    def with_changes(self, changes: Mapping[str, Any]) -> Recipe:
        """A copy with several factors set, as `with_factor`."""
        recipe = self
        for factor in sorted(changes):
            recipe = recipe.with_factor(factor, changes[factor])
        return recipe


def parse_recipe(values: Mapping[str, Any]) -> Recipe:
    """Validate a mapping as a recipe; ConfigError names each bad field and what it allows."""
    try:
        return Recipe.model_validate(dict(values))
    except ValidationError as e:
        raise ConfigError("recipe: " + explain(e, Recipe)) from None


def diff(old: Recipe, new: Recipe) -> dict[str, tuple[Any, Any]]:
    """Factors that differ: name -> (old, new); a factor absent on one side is None there."""
    a, b = old.factors(), new.factors()
    return {k: (a.get(k), b.get(k)) for k in sorted(a.keys() | b.keys()) if a.get(k) != b.get(k)}


def format_diff(d: Mapping[str, tuple[Any, Any]]) -> str:
    """`factor: old -> new` joined by `; `."""
    return "; ".join(f"{k}: {json.dumps(a)} -> {json.dumps(b)}" for k, (a, b) in d.items())


def reward_moves(old: Mapping[str, float], new: Mapping[str, float]) -> int:
    """Elementary moves between two reward compositions.

    Adding, removing or re-weighting one component is one move; a replacement (one component gives its weight to
    another) is one move too.
    """
    a = {k: v for k, v in old.items() if v}
    b = {k: v for k, v in new.items() if v}
    added, removed = b.keys() - a.keys(), a.keys() - b.keys()
    changed = sum(1 for k in a.keys() & b.keys() if a[k] != b[k])
    return max(len(added), len(removed)) + changed


def single_factor(parent: Recipe, child: Recipe) -> str:
    """Name of the one factor that differs; raises SingleFactorError with the diff otherwise."""
    d = diff(parent, child)
    if not d:
        raise SingleFactorError("branch changes no factor; an intervention must change exactly one")
    if len(d) > 1:
        raise SingleFactorError(
            f"branch changes {len(d)} factors, exactly one is allowed; split it into branches: {format_diff(d)}"
        )
    name = next(iter(d))
    if name == "rewards" and (n := reward_moves(parent.rewards, child.rewards)) > 1:
        raise SingleFactorError(
            f"branch makes {n} moves in the reward composition, exactly one is allowed (add, remove, re-weight or "
            f"replace one component): {format_diff(d)}"
        )
    return name


def changes_between(parent: Recipe, child: Recipe, most: int) -> dict[str, Any]:
    """Factor -> new value of each single-factor change that makes the child of the parent.

    SingleFactorError where there are none or more than `most`, or where one of them is no single change by itself.
    """
    d = diff(parent, child)
    if not 1 <= len(d) <= most:
        raise SingleFactorError(f"a bundle changes 1 to {most} factors, this one {len(d)}: {format_diff(d)}")
    changes = {factor: new for factor, (_, new) in d.items()}
    for factor, new in changes.items():
        single_factor(parent, parent.with_factor(factor, new))
    return changes


class LintIssue(Frozen):
    """One complaint of the config lint; `level` error refuses the recipe."""

    level: Literal["error", "warning"]
    factor: str
    message: str


def lint(recipe: Recipe) -> list[LintIssue]:
    """Refuse combinations without any gradient, warn of known harmful ones (METHOD.md sections 2 and 5)."""
    out: list[LintIssue] = []

    def add(level: Literal["error", "warning"], factor: str, message: str) -> None:
        out.append(LintIssue(level=level, factor=factor, message=message))

    paid = {k: w for k, w in recipe.rewards.items() if w}
    if not paid:
        add("error", "rewards", "no reward component has a weight: every advantage is 0; give one a weight")
    elif all(w < 0 for w in paid.values()):
        add("warning", "rewards", "all weights are negative: doing nothing is the optimum")
    if recipe.clip.low == 0 and recipe.clip.high == 0 and recipe.updates_per_step > 1:
        add("error", "clip", "clip range is empty: no gradient after the first pass; widen it")
    if recipe.length.kind != "none" and recipe.length.weight == 0:
        add("warning", "length", f"length rule {recipe.length.kind} has weight 0: no effect")
    if recipe.length.kind == "token_penalty" and recipe.length.weight * recipe.max_tokens > 1:
        add("warning", "length", "token penalty can outweigh correctness: known to collapse length")
    if recipe.resample and recipe.group_filter.kind == "none":
        add(
            "error",
            "resample",
            "resampling replaces filtered groups, but group_filter is none; choose a filter",
        )
    if recipe.lr > 1e-3:
        add("warning", "lr", "lr above 1e-3 collapsed policies at this scale (FEASIBILITY.md section 5)")
    if recipe.temperature < 0.3:
        add("warning", "temperature", "nearly greedy sampling leaves groups without spread")
    if recipe.kl_beta > 0.5:
        add("warning", "kl_beta", "KL weight above 0.5 pins the policy to its start")
    if recipe.entropy_bonus < 0:
        add("warning", "entropy_bonus", "a negative entropy bonus drives collapse")
    return out

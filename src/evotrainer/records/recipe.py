"""The recipe: the complete, immutable, hashed description of one training run.

One top-level field is one *factor*; `knobs` and `scaffold` contribute one per key, and a few small sets of fields that
only make sense together are *composite* factors (`COMPOSITES`). A branch changes exactly one factor (`single_factor`),
computed from the two recipes themselves, never from what an agent declares.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from evotrainer.errors import ConfigError
from evotrainer.records.factor_aliases import name_hint
from evotrainer.records.frozen import Frozen, parsed
from evotrainer.records.hooks import hook_of, settled_hooks
from evotrainer.records.structured_factors import COMPOSITES as COMPOSITES
from evotrainer.records.structured_factors import Averaging as Averaging
from evotrainer.records.structured_factors import Clip as Clip
from evotrainer.records.structured_factors import Credit as Credit
from evotrainer.records.structured_factors import Curriculum as Curriculum
from evotrainer.records.structured_factors import GroupFilter as GroupFilter
from evotrainer.records.structured_factors import LengthRule as LengthRule
from evotrainer.records.structured_factors import Phase as Phase
from evotrainer.records.structured_factors import Replay as Replay
from evotrainer.records.structured_factors import Schedule as Schedule
from evotrainer.records.structured_factors import fields_of as fields_of
from evotrainer.records.structured_factors import open_ended
from evotrainer.records.structured_factors import reward_moves as reward_moves
from evotrainer.records.text import shown
from evotrainer.records.written import settled

Knob = bool | int | float | str
KEYED = ("knobs", "scaffold")
"""Fields each of whose keys is a factor, `<field>.<key>`; the value None takes the key out."""
OF_ATTEMPTS = (
    *("temperature", "deploy_temperature", "top_p", "max_tokens", "max_turns", "knobs", "scaffold"),
    *("rewards", "written", "length", "repetition_penalty"),
)
"""Fields that decide how an attempt is sampled and what it is paid."""
CHAMPION, FROM_BASE = "champion", "base"
"""As values of `start` in a change: the recipe that is changed, and no earlier recipe."""


class Recipe(Frozen):
    """All factors of a training run; the same names for every trainer (docs/recipe.md)."""

    loss: Literal["grpo", "dapo", "dr_grpo", "bnpo", "gspo", "cispo"] = "grpo"
    """Policy loss, TRL's `loss_type`. grpo (arXiv 2402.03300): mean over rollouts of their token means. dapo
    (2503.14476) and bnpo: mean over all tokens of the batch. dr_grpo (2503.20783): sum over tokens, divided by rollouts
    x max_tokens x max_turns. gspo (2507.18071): one ratio for a whole completion. cispo (2506.13585): the ratio is a
    capped weight, and no token loses its gradient."""
    clip: Clip = Clip()
    kl_beta: float = Field(0.0, ge=0)
    """Weight of the KL penalty (k3 estimate, per token) against the start policy (with `start`: that of the earlier
    recipe); TRL's `beta`. 0: no reference policy is run."""
    reward_scaling: Literal["group", "batch", "none"] = "group"
    """Divisor of the advantage r - mean(group), TRL's `scale_rewards`. group: standard deviation of the group + 1e-4;
    batch: of all rollouts of the step + 1e-4; none: 1 (Dr. GRPO)."""
    negative_weight: float = Field(1.0, ge=0)
    """Negative advantages are multiplied by it, after scaling: A' = w A where A < 0. 1: as they are; 0: only what did
    better than its group is learnt from. Where failing rollouts are longer, most of |advantage| x tokens pushes down
    (metric `negative_share`), and a weight below 1 gives the balance back; above 1 it is the other emphasis of
    arXiv 2506.01347 (its W-REINFORCE weighs positive samples by a tenth)."""
    credit: Credit = Credit()
    lr: float = Field(2e-4, gt=0)
    """Peak learning rate of AdamW (betas 0.9 and 0.95)."""
    schedule: Schedule = Schedule()
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's decoupled weight decay (arXiv 1711.05101), on matrices only: not on norms and biases."""
    grad_clip: float = Field(1.0, gt=0)
    """Largest norm of the whole gradient (TRL's `max_grad_norm`); a larger one is scaled down to it."""
    steps: int = Field(30, ge=1)
    """Steps of a training; a step of RL samples, grades and updates the policy (`updates_per_step` times)."""
    prompts_per_step: int = Field(32, ge=1)
    """Prompts (groups) sampled in a step; a step has prompts_per_step x group_size rollouts, and the update takes all
    of them as one batch."""
    group_size: int = Field(8, ge=2)
    """Rollouts per prompt, TRL's `num_generations`; advantages compare them with each other."""
    updates_per_step: int = Field(1, ge=1)
    """Optimizer steps on each step's rollouts, TRL's `num_iterations`. With 1 the policy ratio is always 1, so that
    `clip` does nothing."""
    temperature: float = Field(1.0, gt=0)
    """Sampling temperature in training; that of the starting recipe also in every evaluation of the run, unless
    `[evaluation.protocol]` gives another."""
    deploy_temperature: float | None = Field(None, gt=0)
    """Sampling temperature at which the trained policy is used, and so evaluated and certified; training does not see
    it. None: that of the run's evaluations (of `[evaluation.protocol]`, else of the starting recipe)."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling: the smallest set of tokens of this total probability is sampled from
    (arXiv 1904.09751). 1: all tokens."""
    max_tokens: int = Field(96, ge=1)
    """Most completion tokens per turn; a completion that reaches it is truncated (finish = length)."""
    max_turns: int = Field(1, ge=1)
    """Most turns (actions) of an attempt; 1: one completion."""
    rewards: Mapping[str, float] = Field(default_factory=dict)
    """Reward component of the environment -> weight; the reward is the weighted sum of those that apply. A component
    of the outcome may be paid only if `environment.payable` lists it. At least one weight is not 0."""
    written: Mapping[str, str] = Field(default_factory=dict)
    """Reward components written as code: `<name>@<hash>` -> source of `reward(rollout)` (docs/commands/try-code.md); a
    name may be given without its hash. They are computed for every train and search rollout, and paid by their weight
    in `rewards`."""
    hooks: Mapping[str, str] = Field(default_factory=dict)
    """Edits of the algorithm as code: `<name>@<hash>` -> source of `advantages(group)`, `weights(rollouts)` or
    `select(tasks, history)` (docs/hooks.md); a name may be given without its hash."""
    length: LengthRule = LengthRule()
    repetition_penalty: float = Field(0.0, ge=0)
    """Reward = reward - repetition_penalty x share of the completion's 4-grams of tokens that occurred in it before;
    in units of the reward. (TRL's field of this name is a sampling rule.)"""
    group_filter: GroupFilter = GroupFilter()
    resample: int = Field(0, ge=0)
    """Most further sampling rounds in a step, which replace the groups that `group_filter` dropped (DAPO's dynamic
    sampling, arXiv 2503.14476); 0: off."""
    curriculum: Curriculum = Curriculum()
    averaging: Averaging = Averaging()
    start: Recipe | None = None
    """The recipe that is trained first, whole and under the same seed; this one goes on from its policy with a fresh
    optimizer, and `kl_beta` holds it to that policy: both are reset as in prolonged RL (ProRL, arXiv 2505.24864). None:
    from the base policy. A change may call the recipe that it changes `champion`. Steps and costs count from the base
    policy on, and every seed, also a fresh one, trains both."""
    phases: tuple[Phase, ...] = ()
    """Parts of the training, in order, e.g. `[{ kind = "references", steps = 200 }, { kind = "rl" }]`; none: all of it
    is RL. Together they take `steps` steps, the last one what the others leave, and each begins with a fresh optimizer;
    `schedule` is that of each RL part."""
    replay: Replay = Replay()
    prompt_noise: float = Field(0.0, ge=0, le=1)
    """Share of the training prompts that are worded otherwise, where the environment has other wordings (domain
    randomisation, arXiv 1703.06907); a group shares its wording, and evaluations have the tasks' own."""
    sft_anchor: float = Field(0.0, ge=0)
    """Weight of the SFT loss (-mean log p) on the environment's demonstrations, added to the loss of each update; 0:
    off."""
    entropy_bonus: float = 0.0
    """Weight of the mean token entropy (nats), subtracted from the loss; TRL's `entropy_coef`. 0: off."""
    is_cap: float | None = Field(None, gt=0)
    """Token-level truncated importance sampling: the ratio of the trainer's to the sampler's probability weighs each
    token, and is capped here. None: off."""
    mask_truncated: bool = False
    """Leave truncated completions (finish = length) out of the loss; they stay in the normaliser."""
    knobs: Mapping[str, Knob] = Field(default_factory=dict)
    """Settings of the environment by name (`evotrainer run --dry-run` refuses unknown ones); each key is a factor of
    its own, `knobs.<key>`."""
    scaffold: Mapping[str, str] = Field(default_factory=dict)
    """Slot of the environment -> text in place of its default (docs/add-your-own.md), in training and in evaluations;
    each slot is a factor of its own, `scaffold.<slot>`."""

    @model_validator(mode="before")
    @classmethod
    def _named_by_content(cls, values: Any) -> Any:
        """Written components under the names that their sources have."""
        codes = values.get("written") if isinstance(values, Mapping) else None
        if not isinstance(codes, Mapping) or not codes or not all(isinstance(x, str) for x in codes.values()):
            return values
        rewards, written = settled(values.get("rewards") or {}, codes)
        return {**values, "rewards": rewards, "written": written}

    @field_validator("hooks")
    @classmethod
    def _hooks_by_content(cls, hooks: Mapping[str, str]) -> Mapping[str, str]:
        return settled_hooks(hooks)

    @model_validator(mode="after")
    def _one_rule_each(self) -> Recipe:
        """A hook stands in a built-in rule's place, not beside it."""
        if self.credit.kind == "turn" and (found := hook_of(self.hooks, "advantages")):
            raise ValueError(f"hook {found[0]} gives one advantage for an attempt; set credit to episode")
        if self.curriculum.kind != "none" and (found := hook_of(self.hooks, "select")):
            raise ValueError(f"hook {found[0]} chooses the tasks; set curriculum to none")
        return self

    @field_validator("start", mode="before")
    @classmethod
    def _a_recipe(cls, start: Any) -> Any:
        if not isinstance(start, str):
            return start
        raise ValueError(
            "it names no recipe; give the values of the recipe to train first, or leave it out. champion stands for "
            "the recipe that a change is made to, and base for none"
        )

    @field_validator("phases")
    @classmethod
    def _open_ended(cls, phases: tuple[Phase, ...], info: ValidationInfo) -> tuple[Phase, ...]:
        steps = info.data.get("steps")  # absent where it is wrong itself
        return open_ended(phases, steps) if phases and steps else phases

    @property
    def chain(self) -> tuple[Recipe, ...]:
        """What is trained, in order: the earlier recipes from the base policy on, this one last."""
        return (*(self.start.chain if self.start else ()), self)

    @property
    def all_written(self) -> dict[str, str]:
        """Written components of all that is trained, which every evaluation computes."""
        return {name: source for r in self.chain for name, source in r.written.items()}

    @property
    def before(self) -> int:
        """Steps of the earlier recipes."""
        return sum(r.steps for r in self.chain[:-1])

    @property
    def whole_steps(self) -> int:
        """Steps from the base policy on."""
        return self.before + self.steps

    def at(self, step: int) -> Recipe:
        """The recipe that trains a step, counted from 1 at the base policy."""
        return next(r for r in reversed(self.chain) if step > r.before or r.start is None)

    @property
    def of_attempts(self) -> Recipe:
        """What attempts and their rewards rest on; every factor that training alone reads is at its default."""
        return Recipe().model_copy(update={f: getattr(self, f) for f in OF_ATTEMPTS})

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
        return d | {f"{field}.{k}": v for field in KEYED for k, v in d.pop(field).items()}

    def value(self, factor: str) -> Any:
        """JSON value of a factor, of a composite one an object of its fields;
        None where the recipe has none of that name."""
        now = self.factors()
        return {f: now[f] for f in COMPOSITES[factor]} if factor in COMPOSITES else now.get(factor)

    def with_factor(self, factor: str, value: Any) -> Recipe:
        """A copy with one factor set; raises ConfigError for an unknown factor or a bad value."""
        return self.with_changes({factor: value})

    def with_changes(self, changes: Mapping[str, Any]) -> Recipe:
        """A copy with several factors set, which need to be valid together only."""
        d = self.model_dump(mode="json")
        for factor in sorted(changes):
            self._set(d, factor, changes[factor])
        return parse_recipe(d)

    def _set(self, d: dict[str, Any], factor: str, value: Any) -> None:
        """Set a factor in a dump of this recipe."""
        field, dot, key = factor.partition(".")
        if dot and field in KEYED:
            d[field].pop(key, None)
            d[field] |= {} if value is None else {key: value}
        elif factor in COMPOSITES:
            if not isinstance(value, Mapping) or value.keys() != set(COMPOSITES[factor]):
                got = shown(value, 60)
                raise ConfigError(f"{factor} is an object of all of {', '.join(COMPOSITES[factor])} (got {got})")
            d |= value
        elif factor in type(self).model_fields and factor not in KEYED:
            d[factor] = value
        else:
            known = sorted([*self.factors(), *COMPOSITES])
            there = ", ".join([*known, "knobs.<name>", "scaffold.<slot>"])
            raise ConfigError(f"unknown recipe factor {factor!r}{name_hint(factor, known)}; one of: {there}")
        if "start" in fields_of(factor):
            d["start"] = self._start(d["start"])

    def _start(self, named: Any) -> Any:
        """The recipe that a change of `start` names: the champion is this one, before any other change."""
        if named == CHAMPION:  # where its policy is used is no part of how it was trained
            return self.model_copy(update={"deploy_temperature": None}).model_dump(mode="json")
        return None if named == FROM_BASE else named


def parse_recipe(values: Mapping[str, Any]) -> Recipe:
    """Validate a mapping as a recipe; ConfigError names each bad field and what it allows."""
    return parsed(Recipe, values, "recipe")


def diff(old: Recipe, new: Recipe) -> dict[str, tuple[Any, Any]]:
    """Factors that differ: name -> (old, new); a factor absent on one side is None there."""
    a, b = old.factors(), new.factors()
    return {k: (a.get(k), b.get(k)) for k in sorted(a.keys() | b.keys()) if a.get(k) != b.get(k)}


def format_diff(d: Mapping[str, tuple[Any, Any]]) -> str:
    """`factor: old -> new` joined by `; `."""
    return "; ".join(f"{k}: {json.dumps(short(a))} -> {json.dumps(short(b))}" for k, (a, b) in d.items())


def short(value: Any) -> Any:
    """A factor's value for readers: a recipe (`start`) by its hash and steps, a source by its length, everything else
    as it is."""
    if isinstance(value, str) and ("\n" in value or len(value) > 120):
        return f"{n} lines" if (n := len(value.splitlines())) > 1 else f"{len(value)} characters"
    if not isinstance(value, Mapping):
        return value
    if not {"loss", "steps", "rewards"} <= value.keys():
        return {k: short(v) for k, v in value.items()}
    recipe = parse_recipe(value)
    return f"recipe {recipe.hash}, {recipe.whole_steps} steps"

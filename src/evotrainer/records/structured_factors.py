"""Models of the recipe factors whose value is an object: schedule, group filter, curriculum, phases and others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from evotrainer.records.frozen import Frozen

COMPOSITES: Mapping[str, tuple[str, ...]] = {
    "lr_schedule": ("lr", "schedule"),
    "batch_shape": ("prompts_per_step", "group_size", "steps"),
    "phase_plan": ("phases", "steps"),
    "continuation": ("start", "steps", "phases"),
    "written_reward": ("rewards", "written"),
}
"""Composite factor -> its fields; its value is an object of all of them. A change of one field alone is a change of
that field. lr_schedule: a rate belongs to its schedule. batch_shape: the same sampling shared out otherwise.
phase_plan: supervised steps beside those of RL, which cost many times as much. continuation: a start, how many steps
follow, in which parts. written_reward: a component with its source, and what it is paid. Equal compute is asked of
all."""


class Schedule(Frozen):
    """Learning-rate schedule: linear warm-up over `warmup` steps, then constant, linear to 0 or cosine to 0."""

    kind: Literal["constant", "linear", "cosine"] = "constant"
    """What follows the warm-up."""
    warmup: int = Field(5, ge=0)
    """Steps from lr / warmup to `lr`; 0: none."""


class GroupFilter(Frozen):
    """Which groups of a step give gradient.

    `zero_variance` drops groups whose rewards are all equal. `ema_std` also drops those whose reward standard deviation
    is unusually low: below m - z s, m and s being running mean and standard deviation of it (after max(20, 1/decay)
    groups), z the normal quantile of `keep`. `snr_top_p` keeps the groups of largest reward variance that together hold
    the share `keep` of the step's total (RAGEN-2).
    """

    kind: Literal["none", "zero_variance", "ema_std", "snr_top_p"] = "none"
    """Rule by which groups are dropped; none: all are kept."""
    keep: float = Field(0.9, gt=0, le=1)
    """ema_std: share of groups that pass, were the standard deviations normal. snr_top_p: share of the variance."""
    decay: float = Field(0.1, gt=0, le=1)
    """ema_std: weight of the newest group in the running mean."""


class LengthRule(Frozen):
    """Reward shaping by completion length.

    `token_penalty`: reward - weight * tokens. `overlong`: DAPO's soft penalty, 0 up to `soft` * max_tokens, falling
    linearly to -weight at max_tokens. `correct_bonus`: weight * (1 - tokens/max_tokens) times the reward the recipe's
    own components give (at least 0): right by the recipe's own measure, so that no rule sees a truth the recipe does
    not pay for.
    """

    kind: Literal["none", "token_penalty", "overlong", "correct_bonus"] = "none"
    """Rule; none: length is not paid for."""
    weight: float = Field(0.0, ge=0)
    """In units of the reward, for token_penalty per token; 0: no effect."""
    soft: float = Field(0.75, gt=0, lt=1)
    """overlong: share of max_tokens that costs nothing."""


class Curriculum(Frozen):
    """Which training tasks are drawn; pass rates are by the recipe's own reward.

    `pass_rate_band`: those whose own running pass rate lies in [low, high]; unseen tasks always qualify, so that it
    does nothing before tasks come a second time. `tag_frontier`: by the running pass rate p of a task's `tag` (a
    template, a topic), which is known after a few groups: weight max(floor, 4 p (1 - p)), 1 where half are solved (the
    variance of an outcome, as in learnability scores, arXiv 2502.12272). `difficulty`: easy first by the number that
    `tag` holds; the share of tasks drawn from, easiest ones, grows linearly from a fifth to all at the share `until`
    of the training (competence-based curriculum, arXiv 1903.09848).
    """

    kind: Literal["none", "pass_rate_band", "tag_frontier", "difficulty"] = "none"
    """Rule; none: seeded epochs over all tasks, without replacement."""
    low: float = Field(0.05, ge=0, le=1)
    """pass_rate_band: lowest pass rate; below `high`."""
    high: float = Field(0.95, ge=0, le=1)
    """pass_rate_band: highest pass rate."""
    tag: str = ""
    """tag_frontier, difficulty: name of a tag that the environment's tasks carry."""
    floor: float = Field(0.1, gt=0, le=1)
    """tag_frontier: least weight of a tag's value, so that what looks perfect or hopeless is still tried."""
    until: float = Field(0.5, gt=0, le=1)
    """difficulty: share of the training's draws after which tasks of every difficulty are drawn."""

    @model_validator(mode="after")
    def _band(self) -> Curriculum:
        if self.low >= self.high:
            raise ValueError("curriculum.low must be below curriculum.high")
        if self.kind in ("tag_frontier", "difficulty") and not self.tag:
            raise ValueError(f"curriculum {self.kind} needs curriculum.tag, the name of a tag that the tasks carry")
        return self


class Averaging(Frozen):
    """Which weights become the trained policy; sampling goes on with the weights in training.

    `tail_mean`: the mean of the weights after each of the last ceil(share * steps) steps (tail of Polyak and Juditsky
    1992; stochastic weight averaging, arXiv 1803.05407). `ema`: their exponential mean over the whole training,
    m = decay m + (1 - decay) w, divided by 1 - decay^steps.
    """

    kind: Literal["none", "tail_mean", "ema"] = "none"
    """Average; none: the weights after the last step."""
    share: float = Field(0.5, gt=0, le=1)
    """tail_mean: share of the steps, the last ones."""
    decay: float = Field(0.9, gt=0, lt=1)
    """ema: decay per step; it remembers about 1 / (1 - decay) steps."""


class Phase(Frozen):
    """One part of a training (`Recipe.phases`).

    `references`: supervised learning, -mean log p over the tokens of what a reference says, on references of train
    problems drawn in seeded epochs (InstructGPT's first stage, arXiv 2203.02155). `own`: each step samples as a step
    of RL does and takes one supervised update on the policy's own verified successes: attempts that earn all that the
    recipe's rewards can pay, distinct within a task, a round over the tasks at a time (rejection sampling fine-tuning,
    arXiv 2304.06767 and 2308.01825; iterated, arXiv 2203.14465). `rl`: what a recipe without parts does all along.
    """

    kind: Literal["rl", "references", "own"]
    """What a step of this part is."""
    steps: int | None = Field(None, ge=1)
    """Steps of this part; None, of the last part only: up to the recipe's `steps`."""
    lr: float | None = Field(None, gt=0)
    """Peak rate; None: the recipe's `lr`. A supervised part warms up over its first tenth and falls as a cosine to 0,
    an RL part follows the recipe's `schedule`."""
    batch: int | None = Field(None, ge=1)
    """Texts of a supervised step, at most so many for `own`. None: the recipe's `prompts_per_step` for references, all
    successes of the step for `own`."""

    @model_validator(mode="after")
    def _own_settings(self) -> Phase:
        if self.kind == "rl" and self.batch is not None:
            raise ValueError(
                "phases: batch is of supervised parts; a part of kind rl has the recipe's prompts_per_step"
            )
        return self


class Replay(Frozen):
    """Own verified successes of earlier steps, learnt from again at every update of an RL step.

    Adds weight * mean(-log p) over the tokens of `batch` of them to the loss: self-imitation (arXiv 1806.05635), here
    of full marks only and without a value function. Kept is the first success of each group in which at most the share
    `rare` succeeded, so that what is solved anyway does not fill the buffer; the oldest leave it first.
    """

    weight: float = Field(0.0, ge=0)
    """Weight of the term in the loss; 0: off."""
    batch: int = Field(32, ge=1)
    """Successes drawn for an update."""
    size: int = Field(512, ge=1)
    """Successes kept at most; they are part of the checkpoint."""
    rare: float = Field(0.5, gt=0, le=1)
    """Largest share of successes in a group of which one is kept."""


class Credit(Frozen):
    """What the tokens of an attempt of several turns are credited with.

    `episode`: all with the attempt's advantage. `turn`: those of turn t with that of the return-to-go
    G_t = R + weight * sum of the turn rewards from t on, R being the attempt's reward, scaled within the group as
    rewards are: A_t = (G_t - mean G_t) / (std G_t + 1e-4), where an attempt that ended before t stands with its R
    (turn-level advantages, arXiv 2505.11821 and 2505.10978). With weight 0 both are the same.
    """

    kind: Literal["episode", "turn"] = "episode"
    """Unit that has an advantage; turn needs `max_turns` above 1 and an environment with turn rewards."""
    weight: float = Field(0.1, ge=0)
    """turn: weight of a turn's reward, which environments give in [-1, 1], in units of the reward."""


class Clip(Frozen):
    """PPO's clip range of the policy ratio, [1 - low, 1 + high] (arXiv 1707.06347). For cispo only the cap 1 + high
    of the weight acts."""

    low: float = Field(0.2, ge=0, le=1)
    """The ratio is clipped below 1 - low (TRL's `epsilon`)."""
    high: float = Field(0.2, ge=0)
    """The ratio is clipped above 1 + high (TRL's `epsilon_high`)."""


def open_ended(phases: tuple[Phase, ...], total: int) -> tuple[Phase, ...]:
    """The parts of a training of `total` steps without the last one's `steps`, as recipes are kept: another number of
    steps is then another length of the last part.

    ValueError where a part before the last has no steps, or the parts do not take the total.
    """
    last = phases[-1]
    lengths = [p.steps for p in phases[:-1] if p.steps is not None]
    if len(lengths) < len(phases) - 1:
        raise ValueError("every part but the last needs steps")
    before = sum(lengths)
    if before >= total:
        raise ValueError(f"the parts before the last take {before} steps of {total}; shorten them, or set more steps")
    if last.steps is not None and before + last.steps != total:
        raise ValueError(
            f"the parts take {before + last.steps} steps, the recipe has {total}; set steps to {before + last.steps}, "
            "or leave the last part's steps out"
        )
    return (*phases[:-1], last.model_copy(update={"steps": None}))


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


def fields_of(factor: str) -> tuple[str, ...]:
    """The fields that a factor sets: a composite's, else itself."""
    return COMPOSITES.get(factor, (factor,))

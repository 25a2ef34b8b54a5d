"""The config lint: recipes without any gradient are refused, known harmful ones warned of."""

from __future__ import annotations

from typing import Literal

from evotrainer.records.frozen import Frozen
from evotrainer.records.recipe import Recipe


class LintIssue(Frozen):
    """One complaint of the config lint; `level` error refuses the recipe."""

    level: Literal["error", "warning"]
    factor: str
    message: str


def weighed_against(recipe: Recipe) -> bool:
    """Has the loss a term beside the policy's, against which the size of that one counts?

    Where it has none, a factor that multiplies the whole gradient of a step does next to nothing: AdamW divides the
    size out again, but for its changes from step to step, and clipping does so wholly.
    """
    return recipe.entropy_bonus != 0 or recipe.sft_anchor > 0 or recipe.replay.weight > 0


def dead_groups_act(recipe: Recipe) -> bool:
    """Does it matter to a training whether groups without reward spread are dropped?

    Their advantages are 0, and every loss of every trainer divides by what is kept: dropped, they leave the same
    gradient, larger by 1 / share of live groups. So only where KL or entropy pull at them too, another term is weighed
    against the policy's, turn rewards or a hook give them advantages, or resampling replaces them; and for bnpo, which
    TRL normalises within each micro-batch.
    """
    pulled = recipe.kl_beta > 0 or recipe.credit.kind == "turn" or recipe.loss == "bnpo" or bool(recipe.hooks)
    return pulled or weighed_against(recipe) or recipe.resample > 0


def lint(recipe: Recipe) -> list[LintIssue]:
    """Refuse combinations without any gradient, warn of known harmful ones."""
    out: list[LintIssue] = []

    def add(level: Literal["error", "warning"], factor: str, message: str) -> None:
        out.append(LintIssue(level=level, factor=factor, message=message))

    for issue in lint(recipe.start) if recipe.start else ():
        add(issue.level, "start", f"{issue.factor} of the earlier recipe: {issue.message}")
    paid = {k: w for k, w in recipe.rewards.items() if w}
    if not paid:
        add("error", "rewards", "no reward component has a weight: every advantage is 0; give one a weight")
    elif all(w < 0 for w in paid.values()):
        add("warning", "rewards", "all weights are negative: doing nothing is the optimum")
    if recipe.credit.kind == "turn" and recipe.max_turns == 1:
        add("error", "credit", "an attempt of one turn has one credit; set credit to episode, or max_turns above 1")
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
    if recipe.group_filter.kind == "zero_variance" and not dead_groups_act(recipe):
        add(
            "warning",
            "group_filter",
            "zero_variance drops groups whose advantages are 0 anyway: the gradient keeps its direction and grows, and "
            "AdamW divides its size out again; it acts with resample, kl_beta, entropy_bonus, sft_anchor or replay",
        )
    if recipe.lr > 1e-3:
        add("warning", "lr", "lr above 1e-3 collapsed the small policies of the embedded trainer where it was tried")
    if recipe.temperature < 0.3:
        add("warning", "temperature", "nearly greedy sampling leaves groups without spread")
    if recipe.deploy_temperature is not None and recipe.deploy_temperature < 0.1:
        add("warning", "deploy_temperature", "below 0.1 sampling is greedy in all but name")
    if recipe.deploy_temperature is not None and recipe.deploy_temperature > 1.5:
        add("warning", "deploy_temperature", "above 1.5 the policy is used where it was never trained to be right")
    if recipe.kl_beta > 0.5:
        add("warning", "kl_beta", "KL weight above 0.5 pins the policy to its start")
    average = recipe.averaging
    if average.kind == "tail_mean" and average.share * recipe.steps <= 1:
        add("warning", "averaging", f"{average.share:g} of {recipe.steps} steps is one step: nothing is averaged")
    if average.kind == "ema" and 1 / (1 - average.decay) > recipe.steps:
        add("warning", "averaging", f"decay {average.decay:g} remembers more than the {recipe.steps} steps there are")
    if recipe.negative_weight == 0:
        add("warning", "negative_weight", "nothing is unlearned: known to cost diversity (arXiv 2506.01347)")
    if recipe.entropy_bonus < 0:
        add("warning", "entropy_bonus", "a negative entropy bonus drives collapse")
    return out

"""When a factor that only changes the size of a step's gradient matters."""

from __future__ import annotations

from evotrainer.records.recipe import Recipe


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


def many_passes(recipe: Recipe) -> bool:
    """With one pass per step the ratio stays 1, so that clip range and ratio level do nothing."""
    return recipe.updates_per_step > 1

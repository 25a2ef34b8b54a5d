"""verl's configuration keys from a recipe, by the table of factors."""

from __future__ import annotations

from typing import Any

from evotrainer.errors import ConfigError
from evotrainer.factors.trainer_mapping import carried, keys_of, refusals
from evotrainer.records.recipe import Recipe

OBSERVATION_TOKENS = 512
"""Default room for the environment's answer to one turn, in tokens."""


def translate(recipe: Recipe) -> tuple[dict[str, Any], dict[str, str]]:
    """(verl key -> value, verl key -> factor it comes from). Paths are relative to the run folder.

    Raises ConfigError naming every factor that verl cannot be given, with the reason.
    """
    if refused := refusals(recipe, "verl"):
        raise ConfigError("verl cannot train this recipe: " + "; ".join(refused))
    found = keys_of(recipe, "verl")
    return {k: v for k, (_, v) in found.items()}, {k: factor for k, (factor, _) in found.items()}


def plugins_of(recipe: Recipe) -> tuple[str, ...]:
    """Plug-in files that this recipe needs: those of factors that have no keys, or set them."""
    names = {"evo_reward.py": True, "evo_advantage.py": True}
    for how in carried("verl").values():
        if how.plugins and how.keys(recipe):
            names |= dict.fromkeys(how.plugins.split(), True)
    return tuple(names)


def response_tokens(r: Recipe, observation_tokens: int = OBSERVATION_TOKENS) -> int:
    """Tokens after the prompt: all turns, and the observations between them."""
    return r.max_turns * r.max_tokens + (r.max_turns - 1) * observation_tokens

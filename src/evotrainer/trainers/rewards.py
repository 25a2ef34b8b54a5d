"""The training reward: weighted components, length rule, repetition penalty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evotrainer.errors import TrainerError
from evotrainer.records.recipe import LengthRule, Recipe

NGRAM = 4


def check_components(recipe: Recipe, offered: Mapping[str, str]) -> None:
    """TrainerError where the recipe pays a component the environment does not compute."""
    unknown = sorted(k for k, w in recipe.rewards.items() if w and k not in offered)
    if unknown:
        raise TrainerError(
            f"rewards: the environment has no component {', '.join(unknown)}; it offers {', '.join(sorted(offered))}"
        )


def full_marks(recipe: Recipe, components: Mapping[str, float | None]) -> bool:
    """Does an attempt earn all that the recipe's components can pay (components lie in [0, 1])? Length rule and
    penalties apart. By what is paid, so that no training sees a truth that its recipe does not pay for."""
    best = sum(w for w in recipe.rewards.values() if w > 0)
    earned = sum(w * (components.get(name) or 0.0) for name, w in recipe.rewards.items())
    return best > 0 and earned >= best - 1e-9


def repeated_share(ids: Sequence[int]) -> float:
    """Share of 4-grams of tokens that occurred before in the same completion; 0 for fewer than two 4-grams."""
    n = len(ids) - NGRAM + 1
    if n < 2:
        return 0.0
    return 1.0 - len({tuple(ids[i : i + NGRAM]) for i in range(n)}) / n


def length_term(rule: LengthRule, tokens: int, max_tokens: int, paid: float) -> float:
    """What the length rule adds to the reward; `paid`: what the components gave."""
    if rule.kind == "token_penalty":
        return -rule.weight * tokens
    if rule.kind == "overlong":
        soft = rule.soft * max_tokens
        return -rule.weight * min(1.0, max(0.0, (tokens - soft) / (max_tokens - soft)))
    if rule.kind == "correct_bonus":
        return rule.weight * (1.0 - tokens / max_tokens) * max(0.0, paid)
    return 0.0


def compose(
    recipe: Recipe, components: Mapping[str, float | None], ids: Sequence[int], max_tokens: int
) -> tuple[float, list[str]]:
    """(reward, components that have a weight but do not apply here and were not paid)."""
    reward, absent = 0.0, []
    for name, weight in recipe.rewards.items():
        if not weight:
            continue
        value = components.get(name)
        # None is "does not apply", 0 is "applies and earned nothing": only the latter enters a mean
        if value is None:
            absent.append(name)
        else:
            reward += weight * value
    # the rule sees what the components paid: a bonus for short answers must not pay wrong ones
    reward += length_term(recipe.length, len(ids), max_tokens, reward)
    if recipe.repetition_penalty:
        reward -= recipe.repetition_penalty * repeated_share(ids)
    return reward, absent

"""From reward components to rewards: weighted sum, length term, repetition penalty."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from evotrainer.records.recipe import LengthRule, Recipe

Floats = NDArray[np.float64]
NGRAM = 4


def columns(rows: Sequence[Mapping[str, float | None]], names: Iterable[str]) -> dict[str, Floats]:
    """Components of rollouts as arrays (N,), NaN where one is None or not there."""
    return {c: np.array([np.nan if (v := row.get(c)) is None else v for row in rows], dtype=np.float64) for c in names}


def weighted_sum(weights: Mapping[str, float], components: Mapping[str, Floats], n: int) -> Floats:
    """sum_c w_c x_c, shape (n,), added up in the order of the weights. A component that does not apply is not paid."""
    total = np.zeros(n)
    for name, weight in weights.items():
        if weight:
            x = components[name]
            total += weight * np.where(np.isnan(x), 0.0, x)
    return total


def length_term(rule: LengthRule, tokens: Floats, limit: Floats | float, paid: Floats) -> Floats:
    """What the length rule adds to the reward, shape (N,). `limit`: most tokens a rollout may have; `paid`: what its
    components gave.

    token_penalty: -w t. overlong (DAPO's soft punishment, arXiv 2503.14476, equation 13): -w min(1, max(0, (t - s) /
    (limit - s))), s = soft x limit. correct_bonus: w (1 - t / limit) max(0, paid).
    """
    if rule.kind == "token_penalty":
        return -rule.weight * tokens
    if rule.kind == "overlong":
        soft = rule.soft * limit
        return -rule.weight * np.minimum(1.0, np.maximum(0.0, (tokens - soft) / (limit - soft)))
    if rule.kind == "correct_bonus":
        return rule.weight * (1.0 - tokens / limit) * np.maximum(0.0, paid)
    return np.zeros(len(tokens))


def repeated_share(ids: Sequence[Hashable]) -> float:
    """Share of 4-grams that occurred before in the same completion (tokens, or words); 0 for fewer than two 4-grams."""
    n = len(ids) - NGRAM + 1
    if n < 2:
        return 0.0
    return 1.0 - len({tuple(ids[i : i + NGRAM]) for i in range(n)}) / n


def compose(
    recipe: Recipe,
    components: Mapping[str, Floats],
    tokens: Floats,
    limit: Floats | float,
    repeated: Floats | float = 0.0,
) -> Floats:
    """The training reward, shape (N,): R = p + L(p) - c x repeated, where p is the weighted sum of the components, L
    the length term and c the repetition penalty. `components`: (N,) each, of every name that has a weight."""
    reward = weighted_sum(recipe.rewards, components, len(tokens))
    # the rule sees what the components paid: a bonus for short answers must not pay wrong ones
    reward += length_term(recipe.length, tokens, limit, reward)
    if recipe.repetition_penalty:
        reward -= recipe.repetition_penalty * repeated
    return reward


def rewards_of(
    recipe: Recipe, components: Sequence[Mapping[str, float | None]], ids: Sequence[Sequence[int]]
) -> list[float]:
    """The rewards of rollouts as they are sampled: components and ids of the sampled tokens of each."""
    tokens = np.array([len(x) for x in ids], dtype=np.float64)
    repeated = np.array([repeated_share(x) for x in ids]) if recipe.repetition_penalty else 0.0
    limit = recipe.max_tokens * recipe.max_turns
    return compose(recipe, columns(components, recipe.rewards), tokens, limit, repeated).tolist()


def unpaid(recipe: Recipe, components: Mapping[str, float | None]) -> list[str]:
    """Components that have a weight but do not apply to a rollout: None is no 0, which applies and earned nothing."""
    return [name for name, weight in recipe.rewards.items() if weight and components.get(name) is None]


def most_paid(weights: Mapping[str, float]) -> float:
    """The most that components can pay, which lie in [0, 1]: the sum of the positive weights."""
    return sum(w for w in weights.values() if w > 0)


def pass_mark(weights: Mapping[str, float]) -> float:
    """The reward from which a rollout passes, where a training may not see the outcome: half of the most."""
    return 0.5 * most_paid(weights)


def full_marks(weights: Mapping[str, float], components: Mapping[str, Floats], n: int) -> NDArray[np.bool_]:
    """Rollouts that earn all that the components can pay, shape (n,); length rule and penalties apart. By what is paid,
    so that no training sees a truth that its recipe does not pay for."""
    best = most_paid(weights)
    return (weighted_sum(weights, components, n) >= best - 1e-9) & (best > 0)

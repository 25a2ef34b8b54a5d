"""Forecasts from a replay: a forecast that training can be held against, and whether a prediction can come true.

Both are computed from stored rollouts alone, under the parent's recipe and under the changed one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evotrainer.algorithm.advantages import no_spread
from evotrainer.factors import FACTORS
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import Floats, centred, group_std
from evotrainer.harness.whatif.replay import (
    ReplayInput,
    compose_or_stored,
    dead,
    order_of,
    rewards_of,
    task_weights,
    trained_advantages,
    trained_groups,
)
from evotrainer.records.interventions import Prediction
from evotrainer.records.recipe import Recipe

HOPE = 0.5
"""What a spread counts in groups whose outcomes do not differ, against the same spread where they do."""
MARGIN = 0.01
"""Moves smaller than this contradict nothing, whatever their standard error."""

Agreement = Literal["", "agrees", "open", "contradicts"]

REPLAYED = frozenset(name for name, row in FACTORS.items() if row.replay == "advantages")
"""Factors whose advantages can be recomputed on stored rollouts."""


def quality(batch: Batch, reward: Floats, recipe: Recipe) -> float:
    """Signal over noise of a step on these rollouts under a recipe: sum(A s) / sqrt(n sum(A^2)).

    A: advantages (N,), 0 where filter or mask leave nothing. s: outcome minus the group's mean outcome; in groups whose
    outcomes do not differ, HOPE times what the reward's spread means for the outcome in the other groups. sum(A s) is
    the first-order gain in correctness of a policy-gradient step, sqrt(sum(A^2)) its noise; a change of scale alone
    changes nothing, as with Adam. A curriculum draws other tasks in place of what it leaves out, so all sums are
    weighted by how often it draws a task; what a filter drops is not replaced.
    """
    drawn = task_weights(batch, recipe.curriculum)[batch.task]
    a = trained_advantages(batch, recipe, reward)
    if recipe.mask_truncated:
        a[np.nan_to_num(batch.truncated) > 0.5] = 0.0
    y = np.nan_to_num(centred(batch.truth, batch.group, batch.n_groups))
    r = np.nan_to_num(centred(reward, batch.group, batch.n_groups))
    scored, alike = no_spread(batch.truth, batch.group, batch.n_groups)
    mixed = (scored & ~alike)[batch.group]
    spread = float((r[mixed] ** 2).sum())
    # least squares through 0: what a unit of reward is worth in correctness where both vary; a reward that points the
    # wrong way is worth nothing, not less
    slope = max(0.0, float((r[mixed] * y[mixed]).sum()) / spread) if spread > 1e-12 else 0.0
    # all-fail and all-pass groups may still be ordered rightly by a partial reward; half of what that is worth
    # elsewhere
    s = np.where(mixed, y, HOPE * slope * r)
    norm = float((a * a * drawn).sum())
    n = float(drawn.sum())
    return float((a * s * drawn).sum()) / math.sqrt(norm * n) if norm > 1e-12 and n else 0.0


def forecast(x: ReplayInput, numbers: Mapping[str, float], factor: str) -> float | None:
    """Expected change of one step's signal over noise, in units of what paying for correctness itself would give.

    0: nothing changes; negative: worse. An ordering score, no number of points. None where the replay says nothing
    about this factor, outcomes are unknown, or no group holds both outcomes.
    """
    b = x.batch
    # the unit: paying 0/1 for the outcome itself, under the parent's scaling
    ideal = quality(b, b.truth, Recipe(reward_scaling=x.old.reward_scaling))
    if ideal <= 0:
        return None
    if factor == "max_tokens":
        cut = numbers.get("correct_cut")
        return -cut if cut is not None and x.new.max_tokens < x.old.max_tokens else None
    if factor not in REPLAYED | {"group_size", "resample"}:
        return None
    reward = compose_or_stored(x)
    old = quality(b, reward, x.old)
    if factor == "group_size":
        return old * (_size_gain(x, numbers) - 1) / ideal if numbers.get("dead_before") is not None else None
    if factor == "resample":
        keep, filled = numbers.get("keep_rate", 0.0), numbers.get("filled_after", 0.0)
        # signal over noise grows with the root of the batch, and resampling fills more of it
        before = 1 - (1 - keep) ** (x.old.resample + 1)
        return old * (math.sqrt(filled / before) - 1) / ideal if before > 0 else None
    rewards = rewards_of(x)
    if rewards is None:
        return None
    return (quality(b, rewards[1], x.new) - old) / ideal


def _size_gain(x: ReplayInput, numbers: Mapping[str, float]) -> float:
    # signal over noise grows with the root of the rollouts that give a gradient
    alive = (1 - numbers["dead_after"]) / max(1e-9, 1 - numbers["dead_before"])
    return math.sqrt(x.new.group_size / x.old.group_size * max(0.0, alive))


# -- predictions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shift:
    """A metric before and after, as replayed, over what is trained on."""

    before: float
    after: float
    se: float
    """Of the change, clustered by task."""
    se_before: float
    share: bool
    """Does it lie in [0, 1]?"""

    @property
    def change(self) -> float:
        return self.after - self.before


def shift(x: ReplayInput, metric: str, numbers: Mapping[str, float], factor: str) -> Shift | None:
    """How a metric would move on the stored rollouts; None where the replay cannot see it."""
    b = x.batch
    if factor == "group_size":
        if metric != "frac_reward_zero_std" or "dead_before" not in numbers:
            return None
        p, q = numbers["dead_before"], numbers["dead_after"]
        # binomial error of a share of groups, before and after taken as independent (they are alike, so this is
        # cautious)
        error = [v * (1 - v) / max(1, b.n_groups) for v in (p, q)]
        return Shift(p, q, math.sqrt(sum(error)), math.sqrt(error[0]), True)
    if factor not in REPLAYED - {"reward_scaling", "mask_truncated"}:
        return None
    rewards = rewards_of(x)
    if rewards is None:
        return None
    was, then = _values(b, metric, rewards[0], x.old), _values(b, metric, rewards[1], x.new)
    if was is None or then is None:
        return None
    (before, r0), (after, r1) = _ratio(*was), _ratio(*then)
    if math.isnan(before) or math.isnan(after):
        return None
    task = b.task[b.first]
    # the change's error from the same groups on both sides, paired: their common noise cancels
    return Shift(before, after, _error(r1 - r0, task), _error(r0, task), metric != "reward_std")


def _values(batch: Batch, metric: str, reward: Floats, recipe: Recipe) -> tuple[Floats, Floats] | None:
    """(value, weight) of each group, shape (G,); None for metrics that a replay does not move."""
    scored, is_dead = dead(batch, reward)
    trained = (trained_groups(batch, recipe, reward) & scored) * task_weights(batch, recipe.curriculum)[
        batch.task[batch.first]
    ]
    if metric == "frac_reward_zero_std":
        return is_dead.astype(float), trained
    if metric == "reward_std":
        return np.nan_to_num(group_std(reward, batch.group, batch.n_groups)), trained
    if metric == "filter_keep_rate":
        return trained, scored.astype(float)
    if metric == "misranked_pairs":
        order = order_of(batch, reward)
        return order.wrong / np.maximum(order.pairs, 1), order.pairs * trained
    return None


def _ratio(values: Floats, weights: Floats) -> tuple[float, Floats]:
    """(weighted mean, each group's part in its error), NaN without weight."""
    total = float(weights.sum())
    if total <= 0:
        return math.nan, np.zeros_like(values)
    mean = float((values * weights).sum()) / total
    # linearisation of a ratio of sums (delta method): its parts add up by task to the clustered error
    return mean, (values - mean) * weights / total


def _error(parts: Floats, task: np.ndarray) -> float:
    """Standard error of a sum of parts (G,), clustered by task (G,)."""
    sums = np.bincount(task, weights=parts)
    c = len(np.unique(task))
    return math.sqrt(c / (c - 1) * float((sums**2).sum())) if c > 1 else math.inf


def held_against(
    prediction: Prediction, x: ReplayInput, numbers: Mapping[str, float], factor: str
) -> tuple[Agreement, str, Shift | None]:
    """Can the prediction come true, by what is replayed?

    contradicts: the metric moves the other way, by more than 1 point and 2 standard errors; or the predicted size is
    more than there is room for (a share cannot pass 0 or 1), beyond 2 standard errors of where it stands. agrees: the
    replayed move alone reaches the size. open: in between; a smaller move contradicts nothing, training may add to it.
    Empty where the replay does not see the metric.
    """
    s = shift(x, prediction.metric, numbers, factor)
    if s is None:
        return "", "", None
    sign = 1 if prediction.direction == "up" else -1
    claim = f"predicted {prediction.metric} {prediction.direction} by {prediction.size:g}"
    moved = f"{claim}; replayed {s.before:.3g} -> {s.after:.3g}"
    if sign * s.change < -max(MARGIN, 2 * s.se):
        return "contradicts", f"{moved}: the other way", s
    room = (1 - s.before) if sign > 0 else s.before
    if s.share and prediction.size > room + 2 * s.se_before + 1e-9:
        return "contradicts", f"{claim}, but it stands at {s.before:.3g}: there is no room for that", s
    if sign * s.change >= prediction.size and prediction.size > 0:
        return "agrees", moved, s
    return "open", moved, s

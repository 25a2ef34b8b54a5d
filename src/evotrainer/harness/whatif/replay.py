"""Recomputing rewards and group statistics of stored rollouts under another recipe. Vectorised: 100k rollouts in
seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evotrainer.algorithm import rewards
from evotrainer.algorithm.advantages import advantages, group_std, no_spread
from evotrainer.algorithm.curriculum import band_distance, frontier_weight
from evotrainer.algorithm.filters import FilterState, keep_groups
from evotrainer.factors import family_members
from evotrainer.harness.columns.batch import Batch, tag_codes
from evotrainer.harness.columns.numerics import Floats, centred, group_means, pair_order, within_correlation
from evotrainer.harness.context import HarnessContext
from evotrainer.records.recipe import COMPOSITES, Curriculum, Recipe


def task_rates(batch: Batch) -> Floats:
    """Stored pass rate of each task, NaN where no outcome is known; shape (n_tasks,)."""
    return group_means(batch.truth, batch.task, batch.n_tasks)


def in_band(batch: Batch, rule: Curriculum) -> np.ndarray:
    """Tasks whose stored pass rate lies in the band, or is unknown; all without a band. Boolean, shape (n_tasks,)."""
    if rule.kind != "pass_rate_band":
        return np.ones(batch.n_tasks, dtype=bool)
    rate = task_rates(batch)
    return np.asarray(np.isnan(rate) | (band_distance(rate, rule) == 0), dtype=bool)


def task_weights(batch: Batch, rule: Curriculum) -> Floats:
    """How often each task is drawn, relative to others; shape (n_tasks,). The trainers' rule, on stored pass rates.

    A curriculum by difficulty ends with all tasks alike: 1.
    """
    if rule.kind != "tag_frontier":
        return in_band(batch, rule).astype(float)
    _, code = tag_codes(batch, rule.tag)
    code = code + 1  # tasks without the tag are one more value
    p = group_means(task_rates(batch), code, int(code.max(initial=0)) + 1)
    return frontier_weight(np.where(np.isnan(p), 0.5, p), rule.floor)[code]


CONSTANT = 0.95
BLIND = 0.1
SEEING = 0.2
"""Within-group correlation with correctness above which a component may revive zero-variance groups."""


def compose(batch: Batch, recipe: Recipe) -> Floats:
    """The training reward under a recipe, shape (N,)."""
    # the budget is per answer; rollouts from elsewhere may have more turns than the recipe plays
    turns = np.maximum(recipe.max_turns, np.nan_to_num(batch.trait("turns")))
    repeated = repeated_tokens(batch) if recipe.repetition_penalty else 0.0
    tokens = np.nan_to_num(batch.tokens)
    return rewards.compose(recipe, paid_components(batch, recipe), tokens, recipe.max_tokens * turns, repeated)


def paid_components(batch: Batch, recipe: Recipe) -> dict[str, Floats]:
    """Components that have a weight, (N,) each."""
    return {c: batch.component(c) for c, w in recipe.rewards.items() if w}


def repeated_tokens(batch: Batch) -> Floats:
    """Share of repeated 4-grams, of token ids where they are recorded, else of words; shape (N,)."""
    ids = batch.column("token_ids")
    if any(x is not None for x in ids):
        return np.array([rewards.repeated_share(x or ()) for x in ids], dtype=float)
    return batch.trait("repetition")


@dataclass(frozen=True, slots=True)
class RewardOrder:
    """How rewards order correct and incorrect rollouts within groups. Arrays over groups, shape (G,)."""

    pairs: Floats
    wrong: Floats
    """Misranked pairs, ties half."""
    inverted: Floats
    """Strictly misranked pairs."""

    @property
    def total(self) -> int:
        return int(self.pairs.sum())

    @property
    def misranked(self) -> float:
        return float(self.wrong.sum() / self.pairs.sum()) if self.total else math.nan

    @property
    def strictly(self) -> float:
        return float(self.inverted.sum() / self.pairs.sum()) if self.total else math.nan

    def over(self, groups: np.ndarray) -> float:
        """Misranked share over a boolean mask of groups; NaN without pairs."""
        n = self.pairs[groups].sum()
        return float(self.wrong[groups].sum() / n) if n else math.nan


def order_of(batch: Batch, reward: Floats) -> RewardOrder:
    pairs, inverted, tied = pair_order(reward, batch.truth, batch.group, batch.n_groups)
    return RewardOrder(pairs, inverted + tied / 2, inverted)


def order_change(batch: Batch, old: RewardOrder, new: RewardOrder) -> tuple[float, float]:
    """(change of the misranked share, its standard error clustered by task); NaN without pairs."""
    total = old.pairs.sum()
    if not total:
        return math.nan, math.nan
    change = float((new.wrong - old.wrong).sum() / total)
    first = np.unique(batch.group, return_index=True)[1]
    # error of a ratio of sums, by its linearisation: tasks with more pairs than others count for more
    residual = (new.wrong - old.wrong) - change * old.pairs
    sums = np.bincount(batch.task[first], weights=residual, minlength=batch.n_tasks)
    c = int((np.bincount(batch.task[first], weights=old.pairs, minlength=batch.n_tasks) > 0).sum())
    if c < 2:
        return change, math.inf
    return change, math.sqrt(c / (c - 1) * float((sums**2).sum())) / float(total)


def dead(batch: Batch, reward: Floats) -> tuple[np.ndarray, np.ndarray]:
    """(groups with two rewards or more, zero-variance ones among them), boolean, shape (G,)."""
    return no_spread(reward, batch.group, batch.n_groups)


@dataclass(frozen=True, slots=True)
class RewardTerm:
    """One term of a reward over the batch."""

    variance_share: float
    """cov(term, reward) / var(reward) within groups, in [..., 1]; the parts sum to 1. 0 where nothing varies."""
    correlation: float
    """Of the signed component with correctness within groups; NaN where one does not vary."""
    modal_share: float
    """Share of its most frequent value among rollouts it applies to."""


def parts(batch: Batch, weights: Mapping[str, float], reward: Floats) -> dict[str, RewardTerm]:
    """Each weighted component's part in a reward."""
    total = centred(reward, batch.group, batch.n_groups)
    variance = float((total * total).sum())
    out = {}
    for name, weight in weights.items():
        x = batch.component(name)
        own = centred(weight * np.nan_to_num(x), batch.group, batch.n_groups)
        r = within_correlation(np.sign(weight) * x, batch.truth, batch.group, batch.n_groups)
        known = np.round(x[~np.isnan(x)], 9)
        modal = np.unique(known, return_counts=True)[1].max() / len(known) if len(known) else math.nan
        out[name] = RewardTerm(
            variance_share=float((own * total).sum()) / variance if variance > 1e-12 else 0.0,
            correlation=math.nan if r is None else r,
            modal_share=float(modal),
        )
    return out


def dead_share_at(batch: Batch, reward: Floats, size: int) -> float:
    """Expected share of zero-variance groups with `size` rollouts a group, from those stored; NaN without a full one.

    Smaller than stored: exact, the chance that `size` draws without replacement have equal rewards. Larger: rewards are
    cut at the batch's middle and pass rates fitted by a beta distribution (method of moments), whose
    E[p^size + (1-p)^size] is scaled to agree with the stored share at the stored size.
    """
    count = np.bincount(batch.group[~np.isnan(reward)], minlength=batch.n_groups)
    usable = count >= 2
    if not usable.any():
        return math.nan
    stored = int(np.median(count[usable]))
    if size <= stored:
        return _dead_by_draws(batch, reward, size, count)
    now = _dead_by_draws(batch, reward, stored, count)
    a, b = _beta_fit(batch, reward, count)
    reference = _beta_dead(a, b, stored)
    # only the ratio is taken from the fit: its level errs where pass rates are no beta distribution
    return float(min(1.0, now * _beta_dead(a, b, size) / reference)) if reference > 0 else now


def _dead_by_draws(batch: Batch, reward: Floats, size: int, count: np.ndarray) -> float:
    key = np.stack([batch.group, np.unique(np.round(reward, 6), return_inverse=True)[1]], axis=1)
    pairs, same = np.unique(key[~np.isnan(reward)], axis=0, return_counts=True)
    chance = np.array([math.comb(int(m), size) for m in same], dtype=float)
    alike = np.bincount(pairs[:, 0], weights=chance, minlength=batch.n_groups)
    full = count >= size
    ways = np.array([math.comb(int(n), size) for n in count[full]], dtype=float)
    return float((alike[full] / ways).mean()) if full.any() else math.nan


def _beta_fit(batch: Batch, reward: Floats, count: np.ndarray) -> tuple[float, float]:
    known = ~np.isnan(reward)
    middle = (reward[known].min() + reward[known].max()) / 2
    high = np.bincount(batch.group[known], weights=(reward[known] > middle).astype(float), minlength=batch.n_groups)
    ok = count >= 2
    n, p = count[ok].astype(float), high[ok] / count[ok]
    mean = float(np.clip(p.mean(), 1e-3, 1 - 1e-3))
    # pass rates of few draws spread by themselves: what is left over is the spread between groups
    noise = float((mean * (1 - mean) / n).mean())
    var = min(max(float(p.var()) - noise, 1e-4), mean * (1 - mean) * 0.99)
    # a + b of a beta distribution with this mean and variance
    strength = mean * (1 - mean) / var - 1
    return max(mean * strength, 1e-3), max((1 - mean) * strength, 1e-3)


def _beta_dead(a: float, b: float, n: int) -> float:
    def rise(x: float) -> float:
        # E[p^n] = B(a + n, b) / B(a, b), by logarithms: the gamma function itself overflows
        return math.exp(math.lgamma(x + n) - math.lgamma(x) - math.lgamma(a + b + n) + math.lgamma(a + b))

    return rise(a) + rise(b)


Outcome = Literal["supports", "contradicts", "silent"]
MIN_KEEP = 0.2
"""Of groups or rollouts; with fewer left too little is trained on."""


@dataclass(frozen=True, slots=True)
class ReplayInput:
    """A change and the rollouts it is replayed on."""

    batch: Batch
    old: Recipe
    new: Recipe
    context: HarnessContext


Answer = tuple[Outcome, str, dict[str, float]]
REPLAYS: dict[str, Callable[[ReplayInput], Answer]] = {}


def replays(*factors: str) -> Callable[[Callable[[ReplayInput], Answer]], Callable[[ReplayInput], Answer]]:
    """Register the replay of one or more recipe factors."""

    def register(f: Callable[[ReplayInput], Answer]) -> Callable[[ReplayInput], Answer]:
        REPLAYS.update(dict.fromkeys(factors, f))
        return f

    return register


def compose_or_stored(x: ReplayInput) -> Floats:
    """The parent's reward, recomputed where its components are stored, else as stored."""
    known = all(c in x.batch.component_names for c, w in x.old.rewards.items() if w)
    return compose(x.batch, x.old) if known and x.old.rewards else x.batch.reward


def rewards_of(x: ReplayInput) -> tuple[Floats, Floats] | None:
    """Rewards under the parent's recipe and the new one, (N,) each; None where what the new one needs is not stored."""
    old = compose_or_stored(x)
    if all(getattr(x.new, f) == getattr(x.old, f) for f in family_members("reward") if f not in COMPOSITES):
        return old, old
    known = all(c in x.batch.component_names for c, w in {**x.old.rewards, **x.new.rewards}.items() if w)
    if not known or (x.new.length != x.old.length and not x.batch.has("tokens")):
        return None
    return compose(x.batch, x.old), compose(x.batch, x.new)


def filtered(batch: Batch, recipe: Recipe, reward: Floats) -> np.ndarray:
    """Groups that the recipe's filter keeps, read in stored order; boolean, shape (G,)."""
    return keep_groups(group_std(reward, batch.group, batch.n_groups), recipe.group_filter, FilterState())


def trained_groups(batch: Batch, recipe: Recipe, reward: Floats) -> np.ndarray:
    """Groups that curriculum and filter of a recipe leave, in stored order; boolean, shape (G,)."""
    inside = in_band(batch, recipe.curriculum)[batch.task[batch.first]] if batch.n else np.zeros(0, dtype=bool)
    return np.asarray(inside & filtered(batch, recipe, reward), dtype=bool)


def own_advantages(batch: Batch, recipe: Recipe, reward: Floats) -> Floats:
    """Advantages by the recipe's own rules were all groups kept, NaN without a reward; (N,)."""
    return advantages(reward, batch.group, recipe)


def trained_advantages(batch: Batch, recipe: Recipe, reward: Floats) -> Floats:
    """Advantages that a training under a recipe would use on these rollouts, 0 where it leaves them out; (N,)."""
    kept = trained_groups(batch, recipe, reward)[batch.group]
    return np.nan_to_num(own_advantages(batch, recipe, np.where(kept, reward, np.nan)))


def lost(x: ReplayInput) -> tuple[np.ndarray, dict[str, float]]:
    """What the new recipe no longer trains on: (tasks of which nothing is left, boolean (n_tasks,); numbers).

    Signal is the within-group variance of the outcome: what could be learnt from. Shares are of what was trained on.
    """
    b, reward = x.batch, compose_or_stored(x)
    before, after = trained_groups(b, x.old, reward), trained_groups(b, x.new, reward)
    gone = before & ~after
    task = b.task[b.first]
    had = np.bincount(task[before], minlength=b.n_tasks) > 0
    tasks = had & ~(np.bincount(task[after], minlength=b.n_tasks) > 0)
    right = np.nan_to_num(b.truth) > 0.5
    signal = np.nan_to_num(centred(b.truth, b.group, b.n_groups)) ** 2

    def share(what: np.ndarray) -> float:
        of = float(what[before[b.group]].sum())
        return float(what[gone[b.group]].sum()) / of if of else 0.0

    numbers = {
        "lost_groups": float(gone.sum()) / max(1, int(before.sum())),
        "lost_tasks": float(tasks.sum()),
        "tasks_before": float(had.sum()),
        "lost_correct": share(right.astype(float)),
        "lost_signal": share(signal),
    }
    return tasks, numbers

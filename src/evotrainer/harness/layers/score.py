"""Score layer: how well the rollouts did."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from evotrainer.harness.columns.batch import NAMED_TASKS, Batch, task_tags
from evotrainer.harness.columns.numerics import Floats, clustered_mean, distinct, group_means, nan_or
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.registry import MetricValues, clustered_reading, metric
from evotrainer.records.text import clean


@metric("accuracy", "score", "share", needs=["outcome"])
def accuracy(batch: Batch, context: HarnessContext) -> MetricValues:
    """Correct rollouts among those with a known outcome. SE clustered by task."""
    return clustered_reading(batch.truth, batch)


@metric("reward", "score", "reward", needs=["reward"])
def reward(batch: Batch, context: HarnessContext) -> MetricValues:
    """Mean composed training reward. SE clustered by task."""
    return clustered_reading(batch.reward, batch)


@metric("rewards", "score", "reward", needs=["components"])
def reward_by_component(batch: Batch, context: HarnessContext) -> dict[str, MetricValues]:
    """`rewards/<component>/mean`: mean of each component where it applies, before weighting. SE clustered by task."""
    return {f"rewards/{c}/mean": clustered_reading(batch.component(c), batch) for c in batch.component_names}


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of the chance that one of k attempts is correct: 1 - C(n-c, k) / C(n, k).

    Source: Chen et al., arXiv 2107.03374, eq. 1. n attempts, c of them correct, 1 <= k <= n.
    """
    # fewer than k failures: every choice of k attempts holds a success
    if n - c < k:
        return 1.0
    # the product instead of binomials: C(n, k) overflows floats for large n, and a product of ratios stays accurate
    return 1.0 - math.prod((n - c - i) / (n - i) for i in range(k))


@metric("pass@k", "score", "share", needs=["outcome"])
def pass_at(batch: Batch, context: HarnessContext) -> dict[str, MetricValues]:
    """`pass@<k>` for k = 2, 4, 8, ... up to the largest group size: unbiased estimator per group, mean over groups.

    Groups with fewer than k known outcomes are left out. SE clustered by task.
    """
    known = ~np.isnan(batch.truth)
    n = np.bincount(batch.group[known], minlength=batch.n_groups)
    c = np.bincount(batch.group[known], weights=batch.truth[known], minlength=batch.n_groups).astype(int)
    task_of_group = batch.task[batch.first]
    out, k = {}, 2
    while k <= n.max(initial=0):
        # (n, c) as one integer: the estimator is computed once per distinct pair, of which there are few, not once per
        # group
        pairs = np.unique(n * (n.max() + 1) + c)
        known_pairs = ((int(p) // (int(n.max()) + 1), int(p) % (int(n.max()) + 1)) for p in pairs)
        table = np.array([pass_at_k(a, b, k) if a >= k else np.nan for a, b in known_pairs])
        values = table[np.searchsorted(pairs, n * (n.max() + 1) + c)]
        m, se, used = clustered_mean(values, task_of_group)
        out[f"pass@{k}"] = MetricValues(m, used, se)
        k *= 2
    return out


@metric("avg@n", "score", "share", needs=["outcome"])
def avg_at_n(batch: Batch, context: HarnessContext) -> MetricValues:
    """Mean over tasks of the task's accuracy: every task counts once, however often it was attempted (Avg@n)."""
    rates = _task_rates(batch)
    rates = rates[~np.isnan(rates)]
    # each task is one value here, so no clustering is left to do
    se = float(rates.std(ddof=1)) / math.sqrt(len(rates)) if len(rates) > 1 else None
    return MetricValues(float(rates.mean()), len(rates), se)


TAG_VALUES = 24
"""Values of a tag that are told apart; a tag with more names tasks rather than kinds of them."""
TAG_TASKS = 3
"""Tasks that a value must have."""


@metric("pass_rate", "score", "share", needs=["outcome"])
def pass_rate_by_tag(batch: Batch, context: HarnessContext) -> dict[str, MetricValues]:
    """`pass_rate/<tag>=<value>`: correct rollouts of the tasks that carry this tag value, of tags with 2 to 24 values
    of at least 3 tasks each. What is neither perfect nor hopeless shows here. SE clustered by task."""
    out: dict[str, MetricValues] = {}
    for tag, of_task in task_tags(batch).items():
        count = Counter(v for v in of_task if v)
        values = sorted(v for v, n in count.items() if n >= TAG_TASKS)
        if not 2 <= len(values) <= TAG_VALUES:
            continue
        code = {v: i for i, v in enumerate(values)}
        codes = np.full(batch.n_tasks, -1)
        codes[: len(of_task)] = [code.get(v or "", -1) for v in of_task]
        for v, i in code.items():
            inside = codes[batch.task] == i
            reading = clustered_reading(np.where(inside, batch.truth, np.nan), batch)
            if reading.n:
                out[f"pass_rate/{clean(tag, 40)}={clean(v, 40)}"] = reading
    return out


@metric("proxy_gap", "score", "reward", healthy=(None, 0.03), needs=["components"])
def proxy_gap(batch: Batch, context: HarnessContext) -> MetricValues:
    """Mean of (proxy component - true component), paired per rollout; the pair is the environment's declaration.

    0 means that what looks solved is solved. SE of the paired difference, clustered by task.
    """
    if context.proxy is None:
        return MetricValues(None, missing=("context.proxy",))
    proxy, true = (batch.component(c) for c in context.proxy)
    gap = proxy - true
    if np.isnan(gap).all():
        return MetricValues(None, missing=tuple(f"components.{c}" for c in context.proxy))
    return clustered_reading(gap, batch)


def correct_by_task(batch: Batch) -> dict[str, float]:
    """Task -> share of correct attempts among those with a known outcome."""
    rates = _task_rates(batch)
    first = np.unique(batch.task, return_index=True)[1]
    names = batch.column("task", first.tolist())
    return {name: float(x) for name, x in zip(names, rates.tolist(), strict=True) if not math.isnan(x)}


@metric("greedy_minus_sampled", "score", "share", needs=["outcome"])
def greedy_minus_sampled(batch: Batch, context: HarnessContext) -> dict[str, MetricValues]:
    """Accuracy by greedy decoding less accuracy as sampled, paired by task; absent without a greedy reading.

    Above 0: what the policy finds likeliest is right more often than what it draws, so sampling it colder gains that
    much at most without any training. SE over tasks.
    """
    if context.greedy is None:
        return {}
    sampled = correct_by_task(batch)
    d = np.array([context.greedy[t] - x for t, x in sampled.items() if t in context.greedy])
    if not len(d):
        return {}
    se = float(d.std(ddof=1)) / math.sqrt(len(d)) if len(d) > 1 else None
    return {"greedy_minus_sampled": MetricValues(float(d.mean()), len(d), se)}


SOLVED = 0.5
"""Pass rate from which a task counts as solved."""


def _task_rates(batch: Batch, mask: np.ndarray | bool = True) -> Floats:
    """Pass rate per task over the masked rollouts; NaN without known outcomes."""
    return group_means(np.where(mask, batch.truth, np.nan), batch.task, batch.n_tasks)


@metric("transition", "score", "share of tasks", needs=["outcome"])
def transition(batch: Batch, context: HarnessContext) -> dict[str, MetricValues]:
    """`transition/kept`, `lost`, `gained`, `unsolved`: share of tasks that are solved (pass rate >= 0.5) in both
    versions, only before, only now, in neither; they sum to 1.

    Before: `context.before` (at most 20,000 tasks of the batch are looked up); without it, and with several training
    steps in the batch, the first third of the steps against the last third. Only tasks attempted in both count.
    Healthy: lost below gained.
    """
    if context.before is not None:
        now = _task_rates(batch)
        first = np.unique(batch.task, return_index=True)[1][:NAMED_TASKS]
        old = np.full(batch.n_tasks, np.nan)
        for t, name in enumerate(batch.column("task", first.tolist())):
            old[t] = nan_or(context.before.get(name))
    else:
        step = batch.trait("step")
        steps = distinct(step[~np.isnan(step)])[0]
        if len(steps) < 2:
            return {"transition": MetricValues(None, missing=("context.before, or several steps",))}
        # thirds, with the middle left out: single steps see too few attempts of a task for a pass rate
        third = max(1, len(steps) // 3)
        old = _task_rates(batch, step <= steps[third - 1])
        now = _task_rates(batch, step >= steps[-third])
    both = ~(np.isnan(old) | np.isnan(now))
    n = int(both.sum())
    if n == 0:
        return {"transition": MetricValues(None, missing=("tasks attempted by both versions",))}
    was, is_ = old[both] >= SOLVED, now[both] >= SOLVED
    cells = {"kept": was & is_, "lost": was & ~is_, "gained": ~was & is_, "unsolved": ~was & ~is_}
    shares = {k: float(v.mean()) for k, v in cells.items()}
    return {f"transition/{k}": MetricValues(p, n, math.sqrt(p * (1 - p) / n)) for k, p in shares.items()}

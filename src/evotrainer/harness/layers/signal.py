"""Signal layer: does a group of rollouts give a gradient, and does it point towards correctness?"""

from __future__ import annotations

import numpy as np

from evotrainer.algorithm.advantages import ZERO_STD, no_spread
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import (
    Floats,
    centred,
    clustered_mean,
    pair_order,
    slope_t,
    weighted_share,
    within_correlation,
)
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.registry import MetricValues, clustered_reading, metric

PUSHES_DOWN = 0.6
"""Share of |advantage| x tokens above which training mostly unlearns: 62 to 66% where repositories' failing attempts
ran into the turn limit, and weighing them by a half helped."""


def dead_masks(batch: Batch) -> dict[str, np.ndarray]:
    """Boolean masks over groups (G,): `scored` (two rewards or more), `dead`, and of those `fail`, `pass`, `other`.

    `dead` is zero variance: reward std < 1e-8, as in TRL and our trainers. All-fail and all-pass by outcome where every
    outcome of the group is known and equal, else by reward: at the batch's smallest (and not above 0.5), or largest
    (and above 0.5), reward.
    """
    scored, dead = no_spread(batch.reward, batch.group, batch.n_groups)
    low, high = batch.truth_range
    # one unknown outcome makes the group's verdict by outcome unsafe: it falls back to rewards as a whole
    unknown = np.bincount(batch.group[np.isnan(batch.truth)], minlength=batch.n_groups) > 0
    sure = np.isfinite(low) & ~unknown
    # without outcomes the ends of the batch's rewards stand for wrong and right; "not above 0.5" keeps a batch in which
    # everything is solved from counting as all-fail
    value, top = batch.reward_range
    finite = batch.reward[np.isfinite(batch.reward)]
    least, most = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
    fail = dead & np.where(sure, high < 0.5, (value <= least + ZERO_STD) & (value <= 0.5))
    passed = dead & ~fail & np.where(sure, low > 0.5, (top >= most - ZERO_STD) & (top > 0.5))
    return {"scored": scored, "dead": dead, "fail": fail, "pass": passed, "other": dead & ~fail & ~passed}


def trained_shares(batch: Batch, context: HarnessContext) -> tuple[dict[str, float], int] | None:
    """(share of dead, fail, pass and other among them, number) of the groups that the training drew, by its curve.

    None where the curve does not tell, or the batch's groups are as large: two attempts of an evaluation that agree are
    no dead group of eight.
    """
    recipe, parts = context.recipe, [context.series(k) for k in ("frac_reward_zero_std", "dead_fail", "dead_pass")]
    sizes = batch.sizes[dead_masks(batch)["scored"]]
    told = bool(parts[0]) and len({len(x) for x in parts}) == 1
    if not recipe or not told or not len(sizes) or int(sizes.max()) >= recipe.group_size:
        return None
    dead, fail, passed = (float(np.mean(x)) for x in parts)
    shares = {"dead": dead, "fail": fail, "pass": passed, "other": max(0.0, dead - fail - passed)}
    return shares, len(parts[0]) * recipe.prompts_per_step


def _group_share(batch: Batch, context: HarnessContext, name: str) -> MetricValues:
    if trained := trained_shares(batch, context):
        shares, n = trained
        return MetricValues(shares[name], n, float((shares[name] * (1 - shares[name]) / n) ** 0.5))
    masks = dead_masks(batch)
    scored = masks["scored"]
    values = np.where(scored, masks[name].astype(float), np.nan)
    m, se, n = clustered_mean(values, batch.task[batch.first])
    return MetricValues(m, n, se)


@metric("frac_reward_zero_std", "signal", "share of groups", healthy=(None, 0.3), needs=["reward", "groups"])
def dead_groups(batch: Batch, context: HarnessContext) -> MetricValues:
    """Groups whose rewards have std < 1e-8: their advantages are all 0. Name as in TRL. Healthy: at most 30%.

    Those of the training, by its curve, where the rollouts' groups are smaller; so in `dead_fail`, `dead_pass` and
    `dead_other`.
    """
    return _group_share(batch, context, "dead")


@metric("dead_fail", "signal", "share of groups", needs=["reward", "groups"])
def dead_fail(batch: Batch, context: HarnessContext) -> MetricValues:
    """Zero-variance groups in which every rollout fails: the tasks are too hard for the policy."""
    return _group_share(batch, context, "fail")


@metric("dead_pass", "signal", "share of groups", needs=["reward", "groups"])
def dead_pass(batch: Batch, context: HarnessContext) -> MetricValues:
    """Zero-variance groups in which every rollout passes: the tasks are used up."""
    return _group_share(batch, context, "pass")


@metric("dead_other", "signal", "share of groups", needs=["reward", "groups"])
def dead_other(batch: Batch, context: HarnessContext) -> MetricValues:
    """Zero-variance groups with mixed outcomes or rewards in between: the reward does not see the difference."""
    return _group_share(batch, context, "other")


@metric("reward_std", "signal", "reward", healthy=(0.05, None), needs=["reward", "groups"])
def reward_spread(batch: Batch, context: HarnessContext) -> MetricValues:
    """Mean over groups of the within-group reward std (population). Healthy: at least 0.05."""
    m, se, n = clustered_mean(batch.reward_std, batch.task[batch.first])
    return MetricValues(m, n, se)


@metric("effective_groups", "signal", "share of groups", healthy=(0.3, None), needs=["reward", "groups"])
def effective_groups(batch: Batch, context: HarnessContext) -> MetricValues:
    """Participation ratio of the groups' reward variances, (sum v)^2 / sum v^2, over the number of groups.

    1: all groups carry equal variance; 1/G: one group carries all.
    """
    # variances, not standard deviations: a group's pull on the gradient grows with its advantages' squares
    v = batch.reward_std[~np.isnan(batch.reward_std)] ** 2
    total = float((v**2).sum())
    return MetricValues(float(v.sum()) ** 2 / total / len(v) if total > 1e-18 else 0.0, len(v))


@metric("component_coverage", "signal", "share", needs=["components"])
def component_coverage(batch: Batch, context: HarnessContext) -> dict[str, MetricValues]:
    """`rewards/<component>/coverage`: rollouts that earn a non-zero value, among those it applies to.

    At 95% and more the component is a constant: it raises the reward and gives no signal.
    """
    out = {}
    for c in batch.component_names:
        x = batch.component(c)
        earned = np.where(np.isnan(x), np.nan, (np.abs(np.nan_to_num(x)) > ZERO_STD).astype(float))
        out[f"rewards/{c}/coverage"] = clustered_reading(earned, batch)
    return out


def variance_shares(batch: Batch, weights: dict[str, float]) -> dict[str, float]:
    """Share of the within-group reward variance per paid component: cov(w*x, reward) / var(reward), pooled.

    Here reward = sum of w*x (absent components count 0), so the shares sum to 1; empty where nothing varies.
    """
    # covariance decomposition: var(sum p_i) = sum cov(p_i, sum), exact also for correlated components, where a
    # component's own variance would count the overlap twice
    parts: dict[str, Floats] = {
        c: centred(w * np.nan_to_num(batch.component(c)), batch.group, batch.n_groups) for c, w in weights.items()
    }
    total = np.sum(list(parts.values()), axis=0) if parts else np.zeros(batch.n)
    variance = float((total * total).sum())
    if variance < 1e-12:
        return {}
    return {c: float((p * total).sum()) / variance for c, p in parts.items()}


@metric("component_variance", "signal", "share", needs=["components", "groups"])
def component_variance(batch: Batch, context: HarnessContext) -> dict[str, MetricValues]:
    """`rewards/<component>/variance_share`: share of the within-group reward variance that a paid component makes."""
    if context.weights is None:
        return {"rewards/variance_share": MetricValues(None, missing=("context.recipe",))}
    shares = variance_shares(batch, context.weights)
    return {f"rewards/{c}/variance_share": MetricValues(s, batch.n_groups) for c, s in shares.items()}


@metric("component_correlation", "signal", "correlation", needs=["components", "outcome", "groups"])
def component_correlation(batch: Batch, context: HarnessContext) -> dict[str, MetricValues]:
    """`rewards/<component>/correlation`: Pearson correlation with correctness within groups (group means removed);
    n: rollouts that have both."""
    out = {}
    for c in batch.component_names:
        x = batch.component(c)
        r = within_correlation(x, batch.truth, batch.group, batch.n_groups)
        n = int(np.isfinite(x + batch.truth).sum())
        out[f"rewards/{c}/correlation"] = MetricValues(r, n, missing=() if r is not None else ("variation",))
    return out


@metric("reward_correlation", "signal", "correlation", healthy=(0.3, None), needs=["reward", "outcome", "groups"])
def reward_correlation(batch: Batch, context: HarnessContext) -> MetricValues:
    """Pearson correlation of the training reward with correctness within groups. None where one does not vary."""
    r = within_correlation(batch.reward, batch.truth, batch.group, batch.n_groups)
    n = int(np.isfinite(batch.reward + batch.truth).sum())
    return MetricValues(r, n, missing=() if r is not None else ("variation",))


@metric("misranked_pairs", "signal", "share of pairs", healthy=(None, 0.2), needs=["reward", "outcome", "groups"])
def misranked_pairs(batch: Batch, context: HarnessContext) -> MetricValues:
    """(correct, incorrect) pairs of one group whose rewards are in the wrong order; ties count half. 1 - AUC,
    pooled."""
    pairs, inverted, tied = pair_order(batch.reward, batch.truth, batch.group, batch.n_groups)
    n = float(pairs.sum())
    if n == 0:
        return MetricValues(None, missing=("groups with both outcomes",))
    return MetricValues(float((inverted + tied / 2).sum()) / n, int(n))


def paid_like_correct(batch: Batch) -> Floats:
    """Of rollouts that earn at least as much as the median correct one: 1 incorrect, 0 correct; NaN for all others, and
    for all where fewer than 8 are correct or the reward never varies. Shape (N,)."""
    right = batch.truth > 0.5
    of_right = batch.reward[right & np.isfinite(batch.reward)]
    graded = batch.reward[np.isfinite(batch.reward)]
    if len(of_right) < 8 or np.ptp(graded) <= ZERO_STD:
        return np.full(batch.n, np.nan)
    paid = np.nan_to_num(batch.reward, nan=-np.inf) >= np.median(of_right) - 1e-9
    return np.where(paid & np.isfinite(batch.truth), 1.0 - batch.truth, np.nan)


@metric("paid_but_wrong", "signal", "share", healthy=(None, 0.05), needs=["reward", "outcome"])
def paid_but_wrong(batch: Batch, context: HarnessContext) -> MetricValues:
    """Incorrect ones among the rollouts that earn at least as much as the median correct one: paid solves that the
    truth refuses. Needs 8 correct ones and a reward that varies. SE clustered by task."""
    wrong = paid_like_correct(batch)
    if not np.isfinite(wrong).any():
        return MetricValues(None, missing=("8 correct rollouts and a reward that varies",))
    return clustered_reading(wrong, batch)


@metric("entropy", "signal", "nats", needs=["entropy"])
def entropy(batch: Batch, context: HarnessContext) -> MetricValues:
    """Mean token entropy of the sampling distribution, mean over rollouts."""
    return clustered_reading(batch.entropy, batch)


@metric("mean_logprob", "signal", "nats", healthy=(None, -0.1), needs=["mean_logprob"])
def mean_logprob(batch: Batch, context: HarnessContext) -> MetricValues:
    """Mean log-probability of sampled tokens, mean over rollouts. Above -0.1 the policy hardly explores."""
    return clustered_reading(batch.mean_logprob, batch)


@metric("completions/clipped_ratio", "signal", "share", healthy=(None, 0.15), needs=["finish"])
def truncation(batch: Batch, context: HarnessContext) -> MetricValues:
    """Completions cut by the token budget (finish = length). Name as in TRL. Healthy: at most 15%."""
    return clustered_reading(batch.truncated, batch)


@metric("filter_keep_rate", "signal", "share", healthy=(0.3, None), needs=["advantage"])
def filter_keep_rate(batch: Batch, context: HarnessContext) -> MetricValues:
    """Rollouts that kept an advantage; the others were filtered with their group. Training rollouts only."""
    return clustered_reading((~np.isnan(batch.advantage)).astype(float), batch)


@metric("zero_advantage", "signal", "share", healthy=(None, 0.5), needs=["advantage"])
def zero_advantage(batch: Batch, context: HarnessContext) -> MetricValues:
    """Rollouts trained on with advantage 0 (|A| < 1e-8), among those that have one."""
    a = batch.advantage
    return clustered_reading(np.where(np.isnan(a), np.nan, (np.abs(a) < ZERO_STD).astype(float)), batch)


@metric("advantage_agreement", "signal", "share", healthy=(0.8, None), needs=["advantage", "outcome", "groups"])
def advantage_agreement(batch: Batch, context: HarnessContext) -> MetricValues:
    """Rollouts whose advantage has the sign of (outcome - mean outcome of the group), among those where both are
    non-zero. 1: every gradient step points towards correctness; 0.5: it is blind to it. SE clustered by task."""
    better = centred(batch.truth, batch.group, batch.n_groups)
    usable = ~(np.isnan(batch.advantage) | np.isnan(better))
    # a group whose rewards tie has advantage 0, one whose outcomes tie no direction: neither agrees nor disagrees
    usable &= (np.abs(np.nan_to_num(batch.advantage)) > ZERO_STD) & (np.abs(np.nan_to_num(better)) > ZERO_STD)
    if not usable.any():
        return MetricValues(None, missing=("groups with both outcomes and an advantage",))
    agree = (np.sign(batch.advantage) == np.sign(better)).astype(float)
    return clustered_reading(np.where(usable, agree, np.nan), batch)


@metric("negative_share", "signal", "share", healthy=(None, PUSHES_DOWN))
def negative_share(batch: Batch, context: HarnessContext) -> MetricValues:
    """Share of |advantage| x tokens with a negative advantage: how much of the gradient's mass pushes down. One half
    where failing and succeeding rollouts are equally long. Of training rollouts; where none are read (search rollouts
    have no advantage), the mean over the learning curve. SE clustered by task."""
    if not (batch.has("advantage") and batch.has("tokens")):
        series = context.series("negative_share")
        if not series:
            return MetricValues(None, missing=("advantage and tokens, or curve.negative_share",))
        return MetricValues(float(np.mean(series)), len(series))
    a = np.nan_to_num(batch.advantage)
    share, se, n = weighted_share((a < 0).astype(float), np.abs(a) * np.nan_to_num(batch.tokens), batch.task)
    return MetricValues(share, n, se, () if n else ("advantages other than 0",))


@metric("error_rate", "signal", "share", healthy=(None, 0.02))
def error_rate(batch: Batch, context: HarnessContext) -> MetricValues:
    """Infrastructure faults among all rollouts. They are in no other metric; paid as reward 0 they would poison it."""
    n = batch.n + batch.n_faults
    return MetricValues(batch.n_faults / n if n else None, n)


def _last(context: HarnessContext, key: str) -> MetricValues:
    series = context.series(key)
    return MetricValues(series[-1], len(series)) if series else MetricValues(None, missing=(f"curve.{key}",))


@metric("late_gain", "signal", "share")
def late_gain(batch: Batch, context: HarnessContext) -> MetricValues:
    """Change of the training score over the last half of the learning curve, by a least-squares line. Well above 0 the
    policy was still learning when training ended; at 0 the last steps only move it to and fro."""
    series = context.series("score")
    late = series[len(series) // 2 :]
    if len(late) < 4:
        return MetricValues(None, missing=("curve.score of 8 steps",))
    change, t = slope_t(late)
    return MetricValues(change, len(late), abs(change / t) if t else None)


@metric("train_minus_search", "signal", "share", healthy=(None, 0.1), needs=["outcome"])
def train_minus_search(batch: Batch, context: HarnessContext) -> MetricValues:
    """Mean training score over the last fifth of the learning curve less the accuracy of these rollouts, where they are
    of search tasks: what is known of the tasks that were trained on and not of others."""
    score = context.series("score")
    if len(score) < 5 or set(batch.column("split")) != {"search"}:
        return MetricValues(None, missing=("curve.score of 5 steps, or rollouts of search tasks",))
    found = clustered_reading(batch.truth, batch)
    if found.value is None:
        return MetricValues(None, missing=("outcome",))
    return MetricValues(float(np.mean(score[-(len(score) // 5) :])) - found.value, found.n, found.se)


@metric("kl", "signal", "nats")
def kl(batch: Batch, context: HarnessContext) -> MetricValues:
    """KL to the start policy at the last training step, from the learning curve."""
    return _last(context, "kl")


@metric("ess", "signal", "share of the batch", healthy=(0.5, None))
def ess(batch: Batch, context: HarnessContext) -> MetricValues:
    """Effective sample size of the importance weights at the last training step, (sum w)^2 / sum w^2 over the batch
    size (Kish), from the learning curve."""
    return _last(context, "ess")


@metric("ratio_max", "signal", "ratio", healthy=(None, 10.0))
def ratio_max(batch: Batch, context: HarnessContext) -> MetricValues:
    """Largest trainer/sampler probability ratio at the last training step, from the learning curve."""
    return _last(context, "ratio_max")

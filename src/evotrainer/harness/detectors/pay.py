"""Detects wrong pay where no component is named: pay that the outcome refuses, and pay that never differs."""

from __future__ import annotations

import numpy as np

from evotrainer.harness.columns.numerics import at_least, clustered_mean
from evotrainer.harness.detectors.proxy import proxy_pairs
from evotrainer.harness.layers.signal import paid_like_correct
from evotrainer.harness.registry import DetectorInput, detector
from evotrainer.records.findings import Finding


@detector(
    "paid_but_wrong",
    "proxy_gap",
    "score",
    needs=["reward", "outcome"],
    thresholds={"warn": 0.03, "critical": 0.08, "z": 2.0, "sure": 0.95, "min_rollouts": 32},
)
def paid_but_wrong(given: DetectorInput) -> list[Finding]:
    """Of the rollouts that earn at least as much as the median correct one, the share that is incorrect: its lower
    bound (2 standard errors clustered by task, and exactly, 95%) above 3%, critical above 8%. Where a pair of proxy and
    truth is named, that is compared instead (`proxy_divergence`)."""
    if proxy_pairs(given):
        return []
    wrong = paid_like_correct(given.batch)
    share, se, n = clustered_mean(wrong, given.batch.task)
    if share is None or se is None or n < given.thresholds["min_rollouts"]:
        return []
    k = int(np.nansum(wrong))
    low = min(share - given.thresholds["z"] * se, at_least(k, n, given.thresholds["sure"]))
    severity = given.level(low)
    if severity is None:
        return []
    right = given.batch.truth > 0.5
    claim = (
        f"{share:.1%} of {n} rollouts that are paid like correct ones are incorrect ({k}; at least {low:.1%}): the "
        "reward pays what the outcome refuses"
    )
    numbers = {
        "gap": low,
        "share": share,
        "paid": float(np.isfinite(wrong).sum()),
        "unpaid_but_right": float((right & (given.batch.reward < np.nanmedian(given.batch.reward[right]))).sum()),
    }
    return [
        given.finding(severity, claim, numbers, given.quote_where(wrong == 1, "paid like a correct one, incorrect"))
    ]


@detector("constant_reward", "dead_groups", "signal", needs=["reward"], thresholds={"min_rollouts": 16})
def constant_reward(given: DetectorInput) -> list[Finding]:
    """One and the same reward on all of 16 or more rollouts: critical where their outcomes differ, which the reward
    then does not see; else warn where no two of them are of one group, so that no dead group shows it."""
    b = given.batch
    paid = b.reward[np.isfinite(b.reward)]
    if len(paid) < given.thresholds["min_rollouts"] or np.ptp(paid) > 1e-9:
        return []
    known = b.truth[np.isfinite(b.truth)]
    blind = len(known) > 0 and float(np.ptp(known)) > 0
    if not blind and np.isfinite(b.reward_std).any():
        return []
    why = (
        f"while {np.mean(known):.0%} of them are correct: it does not see the outcome"
        if blind
        else "nothing was learnt or measured by it: is the grading in order?"
    )
    claim = f"all {len(paid)} rewards are {paid[0]:g}, {why}"
    numbers = {"rollouts": float(len(paid)), "value": float(paid[0])}
    return [given.finding("critical" if blind else "warn", claim, numbers)]


@detector(
    "reward_hedging",
    "proxy_gap",
    "behaviour",
    needs=["reward", "text"],
    thresholds={"warn": 0.02, "critical": 0.1, "confidence": 0.95, "min_hits": 3, "paid": 0.9, "min_tasks": 3},
)
def reward_hedging(given: DetectorInput) -> list[Finding]:
    """Answers that name all choices of their question ("A, B, C or D"), or list four or more values where another
    attempt at the task is paid for a single one or where the same list answers three tasks, 90% of which are paid:
    `info` for 3 and more, warn above 2% of rollouts, critical above 10%. No answer to a question of which several
    choices may be right, and none that rules choices out."""
    b, limits = given.batch, given.thresholds
    hedges, reward = b.trait("hedges"), b.reward
    if not (hedges > 0).any() or not np.isfinite(reward).any():
        return []
    low, high = np.nanmin(reward), np.nanmax(reward)
    paid = (reward > 0) & (reward >= (low + high) / 2)
    listing = hedges == 0.5
    pairs = np.unique(np.stack([b.traits.solution[listing], b.task[listing]]), axis=1)
    same, tasks = np.unique(pairs[0], return_counts=True)
    spread = np.isin(b.traits.solution, same[tasks >= limits["min_tasks"]])
    mask = (hedges == 1) | (listing & (spread | np.isin(b.task, b.task[(hedges == 0) & paid])))
    hits, share = int(mask.sum()), float(paid[mask].mean()) if mask.any() else 0.0
    if hits < limits["min_hits"] or share < limits["paid"]:
        return []
    claim = (
        f"{hits} of {b.n} answers name every choice or a list of values, and {share:.0%} of them are paid: the reward "
        "looks for the right answer among those given"
    )
    numbers = {"hits": hits, "share": hits / b.n, "paid": share}
    quotes = [given.quote(int(i), text=b.text(int(i))[-200:], note="names them all") for i in given.flag(mask)[:3]]
    return [given.finding(given.level_of(hits, b.n) or "info", claim, numbers, quotes)]

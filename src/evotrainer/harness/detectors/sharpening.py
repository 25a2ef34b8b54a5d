"""Detects gains of narrower sampling, not of what the policy can do."""

from __future__ import annotations

import math

import numpy as np

from evotrainer.harness.layers.score import correct_by_task
from evotrainer.harness.registry import DetectorInput, detector
from evotrainer.records.findings import Finding


@detector(
    "sharpening",
    "sharpening",
    "score",
    needs=["outcome"],
    thresholds={"warn": 0.5, "critical": 0.25, "z": 1.645, "gain": 0.02, "gain_z": 2.326, "min_tasks": 32},
)
def sharpening(look: DetectorInput) -> list[Finding]:
    """Accuracy as sampled rose over the version before (at least 2 points, one-sided 99% bound above 0), and greedy
    decoding shares less than half of it (critical: a quarter): the one-sided 95% upper bound of greedy gain minus half
    of the sampled gain, paired by task, lies below 0. A policy whose logits are only scaled gains so: what is likeliest
    stays what it was."""
    now, before, limits = look.context.greedy, look.context.greedy_before, look.thresholds
    if now is None or before is None or look.context.before is None:
        return []
    sampled, was = correct_by_task(look.batch), look.context.before
    tasks = sorted(sampled.keys() & was.keys() & now.keys() & before.keys())
    if len(tasks) < limits["min_tasks"]:
        return []
    s_T = np.array([sampled[t] - was[t] for t in tasks])
    g_T = np.array([now[t] - before[t] for t in tasks])
    gain, low, _ = _interval(s_T, limits["gain_z"])
    # one contrast instead of two intervals side by side: the errors of both readings of a task go into it together
    share = next(
        (x for x in (limits["critical"], limits["warn"]) if _interval(g_T - x * s_T, limits["z"])[2] < 0), None
    )
    if gain < limits["gain"] or low <= 0 or share is None:
        return []
    greedy, g_low, g_high = _interval(g_T, limits["z"])
    claim = (
        f"sampled accuracy rose by {100 * gain:.1f} points (at least {100 * low:.1f}), greedy accuracy by "
        f"{100 * greedy:.1f} [{100 * g_low:.1f}, {100 * g_high:.1f}], less than {share:.0%} of it, "
        f"over {len(tasks)} tasks"
    )
    numbers = {
        "gap": gain - greedy,
        "sampled": gain,
        "sampled_low": low,
        "greedy": greedy,
        "greedy_high": g_high,
        "excess_high": _interval(g_T - share * s_T, limits["z"])[2],
        "tasks": float(len(tasks)),
    }
    return [look.finding("critical" if share == limits["critical"] else "warn", claim, numbers)]


def _interval(d_T: np.ndarray, z: float) -> tuple[float, float, float]:
    """(mean, lower, upper) of a difference per task, z standard errors each way."""
    mean, half = float(d_T.mean()), z * float(d_T.std(ddof=1)) / math.sqrt(len(d_T))
    return mean, mean - half, mean + half

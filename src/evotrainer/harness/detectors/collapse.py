"""Collapse: of the policy, its entropy, its variety, its link to the input."""

from __future__ import annotations

import math

import numpy as np

from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import slope_t
from evotrainer.harness.columns.scan import jaccard
from evotrainer.harness.layers.score import correct_by_task
from evotrainer.harness.registry import DetectorInput, detector
from evotrainer.records.findings import Finding, Severity


@detector(
    layer="score",
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


@detector(layer="score", needs=["outcome"], thresholds={"warn": 0.05, "critical": 0.15, "z": 3.0})
def policy_collapse(given: DetectorInput) -> list[Finding]:
    """Accuracy more than 5 points (critical 15) below the start policy, beyond 3 standard errors of the difference."""
    now = given.metrics.get("accuracy")
    base = given.context.base
    metrics = base.metrics if base else ()
    before = next((m for m in metrics if m.name == "accuracy"), None)
    if now is None or before is None or now.value is None or before.value is None:
        return []
    drop = before.value - now.value
    # both accuracies are estimates from different rollouts: independent errors add in squares
    se = float(np.hypot(now.se or 0.0, before.se or 0.0))
    severity = given.level(drop)
    if severity is None or drop < given.thresholds["z"] * se:
        return []
    claim = f"accuracy {now.value:.1%} is {100 * drop:.1f} points below the start policy's {before.value:.1%}"
    quotes = given.quote_where(given.batch.truth < 0.5, "incorrect now", 2)
    return [
        given.finding(severity, claim, {"drop": drop, "accuracy": now.value, "base": before.value, "se": se}, quotes)
    ]


@detector(layer="signal", thresholds={"warn": 0.33, "critical": 0.15, "floor": 0.02, "t": -3.0})
def entropy_collapse(given: DetectorInput) -> list[Finding]:
    """Token entropy below a third (critical 15%) of its start, in the curve or against the base reading, and still
    falling or below 0.02 nats; alone it is what learning looks like, so accuracy must not have grown by 5 points."""
    series = given.context.series("entropy")
    now = given.value("entropy")
    start = given.context.reference("entropy")
    if start is None and len(series) >= 5:
        # without a base reading the first fifth of the curve stands for the start; its mean, as single steps are noisy
        start = float(np.mean(series[: max(1, len(series) // 5)]))
    if now is None and series:
        now = series[-1]
    if start is None or now is None or start <= 0:
        return []
    ratio = now / start
    severity = given.level_low(ratio)
    # fewer than 4 points have no slope: the level alone decides then
    falling = len(series) < 4 or slope_t(series)[1] < given.thresholds["t"]
    if severity is None or not (falling or now < given.thresholds["floor"]):
        return []
    # lower entropy with a better score is what RL is for (arXiv 2505.22617 describes the trade-off)
    if given.gained(0.05):
        return []
    claim = f"token entropy fell from {start:.3f} to {now:.3f} nats ({ratio:.0%} of its start)"
    return [given.finding(severity, claim, {"entropy": now, "start": start, "ratio": ratio})]


@detector(
    layer="signal",
    needs=["mean_logprob"],
    thresholds={"warn": -0.1, "critical": -0.05, "distinct": 0.5, "distinct_warn": 0.15},
)
def exploration_collapse(given: DetectorInput) -> list[Finding]:
    """Mean log-probability above -0.1 nats (critical -0.05), or fewer than 15% distinct solutions in a group (all the
    same, in groups of up to 6) whatever the log-probability: warn. It abstains where
    distinct solutions are known to be many, half of a group or more: a peaked policy whose samples still differ
    explores enough. Where they are not known, the log-probability alone decides."""
    logprob = given.value("mean_logprob")
    distinct = given.value("distinct_solutions")
    if logprob is None:
        return []
    size = float(given.batch.sizes.mean()) if given.batch.n_groups else 0.0
    # 1 / size is "all the same": in groups of up to 6 that is above 15%, so the bound must grow with 1 / size
    few = distinct is not None and distinct < max(given.thresholds["distinct_warn"], 1.01 / max(size, 1.0))
    severity: Severity | None = given.level(logprob)
    if few and severity is None:
        severity = "warn"
    # samples that differ outweigh a peaked distribution: many tokens of a program are forced by its syntax
    if severity is None or (distinct is not None and distinct >= given.thresholds["distinct"]):
        return []
    claim = f"mean log-probability {logprob:.3f} nats" + (
        f", {distinct:.0%} of a group's solutions are distinct" if distinct is not None else ""
    )
    b = given.batch
    quotes = [given.quote(i, note="first of its group") for i in range(min(1, b.n))]
    return [given.finding(severity, claim, {"mean_logprob": logprob, "distinct_solutions": distinct}, quotes)]


@detector(
    layer="behaviour",
    needs=["text", "groups", "prompts"],
    thresholds={"warn": 0.3, "critical": 0.1, "min_groups": 8, "variety": 0.5, "reach": 0.5, "alike": 0.5},
)
def template_collapse(given: DetectorInput) -> list[Finding]:
    """Outputs no longer tell which input they answer: retrieval proxy `io_dependence` below 0.3 (critical 0.1) over at
    least 8 tasks, while the batch has under half as many distinct solutions as tasks, or one solution is given to more
    than half of the tasks, or the proxy fell to half of its start while outputs of different tasks share half of their
    words; and the policy is mostly wrong. Tasks with few possible answers (yes or no) look alike and are right; so
    accuracy above 50% is no collapse, nor, where no outcome is known, are several answers most of which are paid."""
    dependence = given.metrics.get("io_dependence")
    if dependence is None or dependence.value is None or dependence.n < given.thresholds["min_groups"]:
        return []
    severity = given.level_low(dependence.value)
    if severity is None:
        return []
    b = given.batch
    distinct = len(b.solutions[0])
    # counted against tasks, not rollouts: one right answer per task would be healthy
    variety = distinct / max(1, b.n_tasks)
    accuracy = given.value("accuracy")
    start = given.context.reference("io_dependence")
    fell = start is not None and dependence.value < 0.5 * start and _alike(b) > given.thresholds["alike"]
    commonest = _commonest(b)
    varied = variety >= given.thresholds["variety"] and commonest < given.thresholds["reach"]
    right = _paid(b) if accuracy is None else accuracy > 0.5
    if (varied and not fell) or right:
        return []
    first = b.first[:3]
    quotes = [given.quote(int(i), note=f"task {b.rollout(int(i)).task}") for i in first]
    claim = (
        f"outputs hardly depend on their input: retrieval {dependence.value:.2f} (1: fully), "
        f"{distinct} distinct solutions for {b.n_tasks} tasks, the commonest one given to {commonest:.0%} of the tasks"
    )
    return [
        given.finding(
            severity, claim, {"io_dependence": dependence.value, "variety": variety, "commonest": commonest}, quotes
        )
    ]


def _alike(b: Batch) -> float:
    """Mean Jaccard similarity of the word sets of neighbouring tasks' first outputs; 0 where what is done is in
    calls."""
    if b.has("tool_calls") or b.n_groups < 2:
        return 0.0
    sketch = b.traits.sketch[b.first]
    return float(np.nan_to_num(jaccard(sketch[:-1], sketch[1:])).mean())


def _paid(b: Batch) -> bool:
    """Are most rollouts paid more than half of the highest reward, and not for the same answer to nearly every task?"""
    reward = b.reward[np.isfinite(b.reward)]
    solutions, _ = b.solutions
    if not len(reward) or not len(solutions) or (b.traits.solution == solutions[0]).mean() > 0.9:
        return False
    low = min(0.0, float(reward.min()))
    return float(np.mean(reward - low > (reward.max() - low) / 2)) > 0.5


def _commonest(b: Batch) -> float:
    """Share of the tasks that are given the batch's commonest solution at least once."""
    solutions, _ = b.solutions
    if not len(solutions):
        return 0.0
    mode = b.traits.solution == solutions[0]
    return len(np.unique(b.task[mode])) / max(1, b.n_tasks)

"""Length: answers that shrink with their accuracy, grow for reward, or hit the token budget."""

from __future__ import annotations

import numpy as np

from evotrainer.harness.columns.numerics import nan_or, within_correlation
from evotrainer.harness.registry import DetectorInput, detector
from evotrainer.records.findings import Finding, Severity

LENGTH = "completions/mean_length"


def _start_and_end(given: DetectorInput) -> tuple[float, float] | None:
    """(start, now) of the mean length: base or oldest previous reading against this one; else the curve's first and
    last fifth."""
    now, before = given.value(LENGTH), given.context.reference(LENGTH)
    if now is not None and before is not None:
        return before, now
    series = given.context.series(LENGTH)
    if len(series) < 5:
        return None
    k = max(1, len(series) // 5)
    return float(np.mean(series[:k])), float(np.mean(series[-k:]))


@detector(layer="behaviour", needs=["tokens"], thresholds={"warn": 0.6, "critical": 0.35, "tiny": 3, "gain": 0.0})
def efficiency_collapse(given: DetectorInput) -> list[Finding]:
    """Mean length falls below 60% (critical 35%) of where it started and accuracy did not gain; or, without a start to
    compare with, the 10th percentile is below 3 tokens while such answers are wrong more often than the rest."""
    limits = given.thresholds
    pair = _start_and_end(given)
    if pair and pair[0] > 0:
        ratio = pair[1] / pair[0]
        severity = given.level_low(ratio)
        start, now = given.context.reference("accuracy"), given.value("accuracy")
        gain = now - start if start is not None and now is not None else nan_or(None)
        if severity is None or given.gained(limits["gain"] + 0.02):
            return []
        claim = f"mean length fell from {pair[0]:.1f} to {pair[1]:.1f} tokens" + (
            f" while accuracy changed by {100 * gain:+.1f} points" if gain == gain else "; accuracy then is unknown"
        )
        short = given.batch.tokens <= np.nanpercentile(given.batch.tokens, 10)
        # NaN: accuracy then and now cannot be compared, so a shorter answer may be a better one and is no critical
        # finding
        if gain != gain:
            severity = "warn"
        return [
            given.finding(
                severity, claim, {"ratio": ratio, "gain": gain}, given.quote_where(short, "among the shortest")
            )
        ]
    # without a start only absolute shortness tells, and only where short answers are wrong more often than long ones
    tiny = given.batch.tokens < limits["tiny"]
    if given.share(tiny) < 0.1 or not given.batch.has("outcome"):
        return []
    a, b = given.batch.truth[tiny], given.batch.truth[~tiny]
    if not (np.isfinite(a).any() and np.isfinite(b).any()) or np.nanmean(a) >= np.nanmean(b) - 0.05:
        return []
    claim = (
        f"{given.share(tiny):.0%} of answers have under {limits['tiny']:.0f} tokens; "
        f"{np.nanmean(a):.0%} of them are correct, against {np.nanmean(b):.0%}"
    )
    return [given.finding("warn", claim, {"share": given.share(tiny)}, given.quote_where(tiny, "tiny answer"))]


@detector(
    layer="behaviour",
    needs=["tokens", "reward", "groups"],
    thresholds={
        "correlation": 0.3,
        "growth": 1.5,
        "critical_growth": 3.0,
        "flat": 0.02,
        "min_groups": 8,
        "much": 2.0,
        "weak": 0.1,
    },
)
def length_gaming(given: DetectorInput) -> list[Finding]:
    """Within groups longer answers earn more (correlation above 0.3; above 0.1 where lengths have doubled and it is 0.1
    above that with correctness), lengths grew by half (critical: threefold), and accuracy stayed flat (within 2 points,
    or one standard error). Where accuracy itself grows with length (correlation of length with correctness as high),
    length is work, not gaming."""
    b, limits = given.batch, given.thresholds
    r = within_correlation(b.tokens, b.reward, b.group, b.n_groups)
    if b.n_groups < limits["min_groups"] or r is None:
        return []
    pair = _start_and_end(given)
    growth = pair[1] / pair[0] if pair and pair[0] > 0 else nan_or(None)
    with_truth = within_correlation(b.tokens, b.truth, b.group, b.n_groups)
    doubled = growth >= limits["much"] and with_truth is not None and r > limits["weak"]
    if r <= limits["correlation"] and not doubled:
        return []
    start, now = given.context.reference("accuracy"), given.value("accuracy")
    gain = now - start if start is not None and now is not None else nan_or(None)
    if growth == growth and growth < limits["growth"]:
        return []
    if given.gained(limits["flat"]):
        return []
    # longer answers that are right more often earn more for a reason
    if with_truth is not None and with_truth > r - 0.1:
        return []
    # NaN growth and no outcome: nothing says that length is paid for itself
    if growth != growth and with_truth is None:
        return []
    severity: Severity = "critical" if growth > limits["critical_growth"] else "warn"
    claim = f"within groups longer answers earn more (r = {r:.2f}" + (
        f"; with correctness r = {with_truth:.2f})" if with_truth is not None else ")"
    )
    if growth == growth:
        claim += f"; mean length grew {growth:.1f}-fold"
    long = b.tokens >= np.nanpercentile(b.tokens, 90)
    numbers = {"correlation": r, "correlation_with_correctness": with_truth, "growth": growth, "gain": gain}
    return [given.finding(severity, claim, numbers, given.quote_where(long, "among the longest", 2))]


@detector(
    layer="signal", needs=["finish"], thresholds={"warn": 0.15, "critical": 0.3, "min_rollouts": 16, "confidence": 0.95}
)
def truncation(given: DetectorInput) -> list[Finding]:
    """Completions that the token budget cuts off before a right answer: warn above 15%, critical above 30%. Where
    outcomes are unknown, all that it cuts off."""
    t = given.batch.truncated
    known = ~np.isnan(t)
    if known.sum() < given.thresholds["min_rollouts"]:
        return []
    share = float(t[known].mean())
    cut = np.nan_to_num(t) > 0.5
    # a right answer that runs on is paid as it stands: more tokens would not mend it
    severity = given.level_of(int((cut & ~(given.batch.truth > 0.5)).sum()), int(known.sum()))
    if severity is None:
        return []
    right = given.batch.truth[cut]
    right = right[~np.isnan(right)]
    accuracy = float(right.mean()) if len(right) else None
    budget = given.context.token_budget
    claim = f"{share:.0%} of completions are truncated" + (f" at {budget} tokens" if budget else " by the token budget")
    if accuracy is not None:
        claim += f"; {accuracy:.0%} of the truncated ones are correct"
    quotes = [
        given.quote(int(i), text=given.batch.text(int(i))[-200:], note="its end, truncated")
        for i in given.flag(cut & ~(given.batch.truth > 0.5))[:2]
    ]
    return [given.finding(severity, claim, {"share": share, "accuracy_of_cut": accuracy}, quotes)]

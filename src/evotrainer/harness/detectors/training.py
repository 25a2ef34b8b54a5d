"""Failures that show over training: the echo trap, drift between trainer and sampler, scores that jump."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from evotrainer.harness.columns.numerics import glitches, interpolated, slope_t
from evotrainer.harness.registry import DetectorInput, detector
from evotrainer.records.findings import Finding, Severity


@detector(
    layer="behaviour",
    needs=["text"],
    thresholds={
        "repetition": 0.5,
        "run": 4,
        "calls": 0.25,
        "warn": 0.1,
        "critical": 0.3,
        "confidence": 0.95,
        "min_rollouts": 16,
        "t": 3.0,
        "checks": 3,
        "gain": 0.02,
        "spike": 5.0,
    },
)
def echo_trap(given: DetectorInput) -> list[Finding]:
    """Rollouts that echo themselves: more than half of their 4-grams repeat (in episodes: within a turn, or half of the
    turns were said before), or one action (one line) runs 5 times or more: warn above 10% of rollouts, critical above
    30%. Only what the policy wrote itself counts: no tool output, no lines that it was shown, no keys and signs of
    JSON. Where more than a quarter of a rollout's calls were made before, with the same reply and no edit in between:
    warn above 10% of rollouts. On the way there: turns rise in three checks in a row, or turns or repetition rise over
    the curve, while in-group spread and entropy fall over the curve and accuracy does not gain: warn, and critical
    where rollouts echo themselves already. A gradient norm that ends above 5 times its median while spread and entropy
    fall makes either critical. After RAGEN's echo trap (arXiv 2504.20073)."""
    b, limits = given.batch, given.thresholds
    if b.n < limits["min_rollouts"]:
        return []
    rep, run, calls = b.trait("own_repetition"), b.trait("action_run"), b.trait("repeated_calls")
    mask = (rep > limits["repetition"]) | (run > limits["run"])
    again = calls > limits["calls"]
    share = given.share(mask)
    severity: Severity | None = given.level_of(int(mask.sum()), len(mask))
    if severity is None and given.level_of(int(again.sum()), len(again)):
        severity = "warn"
    signs = _onset(given)
    if signs:
        # repetition that is there already and signs that it grows are two independent readings of one failure
        severity = "critical" if severity else "warn"
    if severity is None:
        return []
    spike = _spike(given)
    if spike is not None:
        severity = "critical"
    claim = (
        f"{share:.0%} of rollouts repeat themselves (mean 4-gram repetition {rep.mean():.0%}, "
        f"longest run of one action {int(run.max())})"
    )
    if again.any():
        claim += f"; {given.share(again):.0%} make the same call again, for the same reply"
    if signs:
        claim += f"; {signs} while in-group spread and entropy fall"
    if spike is not None:
        claim += f"; the gradient norm ends at {spike:.0f} times its median" + (
            "" if signs else " while in-group spread and entropy fall"
        )
    numbers = {"share": share, "repetition": float(rep.mean()), "longest_run": float(run.max()), "spike": spike}
    numbers["repeated_calls"] = given.share(again)
    quotes = given.quote_where(mask, "repeats itself") or given.quote_where(again, "calls the same again")
    return [given.finding(severity, claim, numbers, quotes)]


def _narrowing(given: DetectorInput) -> bool:
    """Do in-group spread and entropy both fall over the curve?"""
    falls = [slope_t(given.context.series(k)) for k in ("reward_std", "entropy")]
    return all(change < 0 and t < -given.thresholds["t"] for change, t in falls)


def _spike(given: DetectorInput) -> float | None:
    """The last gradient norm over the median one, where it spikes while spread and entropy fall."""
    norms = given.context.series("grad_norm")
    if len(norms) < 4 or not _narrowing(given):
        return None
    # the median: a few earlier spikes would lift a mean, and hide the last one
    ratio = norms[-1] / max(float(np.median(norms)), 1e-12)
    return ratio if ratio > given.thresholds["spike"] else None


def _onset(given: DetectorInput) -> str:
    """What rises while spread and entropy fall; empty where this is not so, or accuracy gains."""
    limits = given.thresholds
    if given.gained(limits["gain"]) or not _narrowing(given):
        return ""
    # the present reading closes the series of earlier ones; one more than `checks` makes that many rises
    readings = [*(r.metric("turns") for r in given.context.previous), given.value("turns")]
    checks = [x for x in readings if x is not None][-int(limits["checks"]) - 1 :]
    if (
        len(checks) > limits["checks"]
        and all(b > a + 1e-9 for a, b in pairwise(checks))
        and checks[-1] > 1.1 * checks[0]
    ):
        return f"turns rose in {len(checks) - 1} checks in a row to {checks[-1]:.1f}"
    for key, what in (("turns", "turns"), ("ngram_repetition", "repetition")):
        series = given.context.series(key)
        change, t = slope_t(series)
        # a significant slope may be tiny: it must also be a tenth of where it began
        if t > limits["t"] and change > 0.1 * max(series[0], 0.5):
            return f"{what} rose over the curve by {change:.2g}"
    return ""


@detector(layer="signal", thresholds={
        "ratio_warn": 10.0, "ratio_critical": 100.0, "kl_warn": 0.5, "kl_critical": 2.0, "ess_warn": 0.5,
        "ess_critical": 0.1, "steps": 3,
    })  # fmt: skip
def off_policy_drift(given: DetectorInput) -> list[Finding]:
    """Median over the last 3 training steps of the largest trainer/sampler ratio above 10 (critical 100), of the KL to
    the start policy above 0.5 nats (critical 2) and rising, or of the effective sample size of the importance weights
    (Kish, as a share of the batch; `ess`) below half (critical a tenth)."""
    steps = int(given.thresholds["steps"])
    out = []
    ratios, kls, ess = (given.context.series(k) for k in ("ratio_max", "kl", "ess"))
    if len(ratios) >= steps:
        x = float(np.median(ratios[-steps:]))
        if severity := given.level(x, "ratio_warn", "ratio_critical"):
            claim = f"the largest trainer/sampler probability ratio is {x:.3g} (median of the last {steps} steps)"
            out.append(given.finding(severity, claim, {"ratio_max": x}))
    # 4 points at least: below that `slope_t` has no t, and a high but stable KL is the price of a good policy
    if len(kls) >= max(steps, 4):
        x = float(np.median(kls[-steps:]))
        severity = given.level(x, "kl_warn", "kl_critical")
        if severity and slope_t(kls)[1] > 3:
            claim = f"KL to the start policy is {x:.2f} nats and rising"
            out.append(given.finding(severity, claim, {"kl": x}))
    # above 1 it is no share of the batch (an absolute sample size, say), and the thresholds are of shares
    if len(ess) >= steps and max(ess) <= 1.0 + 1e-6:
        x = float(np.median(ess[-steps:]))
        if severity := given.level_low(x, "ess_warn", "ess_critical"):
            claim = (
                f"importance weights leave {x:.0%} of the batch as effective sample (median of the last {steps} steps)"
            )
            out.append(given.finding(severity, claim, {"ess": x}))
    return out


@detector(layer="score", thresholds={"sd": 4.0, "warn": 0.15, "window": 3, "min_points": 12, "glitch": 6.0})
def score_jump(given: DetectorInput) -> list[Finding]:
    """Over the learning curve (`score`, else `accuracy`, else `reward` where it lies in [0, 1]) the mean of three steps
    lies more than 15 points above the mean of the three steps before, and more than 4 robust standard deviations
    (1.4826 MAD) above the curve's usual change. A single step that leaves the curve and is back
    (`curve_glitch`) is no part of it. Alone it asks for an explanation: a leak, a broken grader, or a skill found."""
    width = int(given.thresholds["window"])
    keys = ("score", "accuracy", "reward")
    curves = (given.context.series(k) for k in keys)
    series = next((x for x in curves if len(x) >= given.thresholds["min_points"]), None)
    if series is None or min(series) < -1e-6 or max(series) > 1.0 + 1e-6:
        return []
    y = np.array(interpolated(series, glitches(series, given.thresholds["glitch"])))
    mean = np.convolve(y, np.ones(width) / width, mode="valid")
    # difference of neighbouring windows that share no step, so that one noisy step counts on one side only
    rise = mean[width:] - mean[:-width]
    usual = float(np.median(rise))
    # 1.4826 MAD estimates the sd of a normal and ignores the jump itself; the floor keeps a flat curve from dividing by
    # 0
    sd = max(1.4826 * float(np.median(np.abs(rise - usual))), 0.005)
    at = int(rise.argmax())
    if rise[at] <= given.thresholds["warn"] or rise[at] - usual <= given.thresholds["sd"] * sd:
        return []
    claim = (
        f"the score jumps by {100 * rise[at]:.0f} points at step {at + width + 1} of {len(y)}, "
        f"{(rise[at] - usual) / sd:.0f} robust standard deviations above the usual change: it wants an explanation"
    )
    return [given.finding("warn", claim, {"rise": float(rise[at]), "sd": sd, "at": at + width + 1})]


@detector(kind="infrastructure", layer="score", thresholds={"sd": 6.0, "least": 0.05})
def curve_glitch(given: DetectorInput) -> list[Finding]:
    """A single step of the learning curve (`reward`, `score`, `accuracy`) that leaves it and is back at the next one:
    more than 6 robust standard deviations and 5% of the curve's size from the mean of its neighbours, which agree.
    It is no trend: a step whose grading or logging failed, and it is left out where trends are read."""
    out = []
    steps = [p.get("step") for p in given.context.curve]
    for key in ("reward", "score", "accuracy"):
        y = given.context.series(key)
        whole = len(y) == len(steps)
        size = max((abs(v) for v in y), default=0.0)
        for i in glitches(y, given.thresholds["sd"]):
            off = y[i] - (y[i - 1] + y[i + 1]) / 2
            if abs(off) <= given.thresholds["least"] * size:
                continue
            at = steps[i] if whole and steps[i] is not None else i + 1
            claim = (
                f"{key} is {y[i]:.3g} at step {at:g} of the curve, between {y[i - 1]:.3g} and {y[i + 1]:.3g}: one step "
                "that does not belong to it; look at how it was graded or logged"
            )
            out.append(given.finding("warn", claim, {"off": off, "at": float(at or 0)}))
    return out

"""Signal detectors: whether the training sees a difference between rollouts, and whether it is the right one?"""

from __future__ import annotations

from collections import Counter

import numpy as np

from evotrainer.harness.columns.numerics import centred, distinct, nan_or, within_correlation
from evotrainer.harness.layers.signal import dead_masks, trained_shares, variance_shares
from evotrainer.harness.registry import DetectorInput, detector, flag_rows, name_of
from evotrainer.records.findings import Finding, Quote
from evotrainer.records.text import clean


def _group_quotes(given: DetectorInput, mask: np.ndarray, note: str) -> list[Quote]:
    given.flag(mask[given.batch.group])
    return [given.quote(int(given.batch.first[g]), note=note) for g in np.flatnonzero(mask)[:2]]


@detector(
    layer="signal",
    needs=["reward", "groups"],
    thresholds={"warn": 0.3, "critical": 0.5, "min_groups": 3, "confidence": 0.95},
)
def dead_groups(given: DetectorInput) -> list[Finding]:
    """Share of groups with reward std < 1e-8: warn above 30%, critical above 50%.

    Groups of an evaluation that are smaller than those of the training (two attempts that agree are no dead group of
    eight) leave the shares to the training's own curve, where there is one. Kind `saturation` where most of the
    zero-variance groups are solved by every attempt, else `dead_groups`.
    """
    masks = dead_masks(given.batch)
    n = int(masks["scored"].sum())
    if n < given.thresholds["min_groups"]:
        return []
    shares = {k: float(masks[k].sum()) / n for k in ("dead", "fail", "pass", "other")}
    groups, trained = f"{n} groups", trained_shares(given.batch, given.context)
    if trained:
        shares, n = trained
        groups = f"{n} groups of the training"
    severity = given.level_of(round(shares["dead"] * n), n)
    if severity is None:
        return []
    # the remedies differ: harder tasks for groups that always pass, another reward or larger groups for the rest
    saturated = shares["pass"] > shares["dead"] / 2
    worst = "pass" if saturated else max(("fail", "other"), key=lambda k: shares[k])
    what = {"pass": "solved by every attempt", "fail": "failed by every attempt", "other": "rewarded alike"}[worst]
    claim = f"{shares['dead']:.0%} of {groups} are dead: {shares['fail']:.0%} all fail, {shares['pass']:.0%} all pass"
    claim += f", {shares['other']:.0%} get one reward otherwise" if shares["other"] else ""
    quotes = _group_quotes(given, masks[worst], f"first of a group {what}")
    kind = "saturation" if saturated else "dead_groups"
    return [given.finding(severity, claim, {**shares, "groups": n}, quotes, kind=kind)]


@detector(layer="signal", needs=["reward", "groups"], thresholds={"warn": 0.05, "min_groups": 4})
def low_spread(given: DetectorInput) -> list[Finding]:
    """Mean within-group reward std over live groups below 0.05: what little spread there is drowns in noise."""
    masks = dead_masks(given.batch)
    # zero-variance groups are another detector's; counted here they would pull any mean below the threshold
    alive = given.batch.reward_std[masks["scored"] & ~masks["dead"]]
    if len(alive) < given.thresholds["min_groups"] or float(alive.mean()) >= given.thresholds["warn"]:
        return []
    mean = float(alive.mean())
    claim = f"groups that are not dead have a mean reward std of only {mean:.3f}"
    return [given.finding("warn", claim, {"reward_std": mean, "groups": len(alive)})]


@detector(
    layer="signal",
    needs=["components", "outcome", "groups"],
    thresholds={"warn": 0.3, "critical": 0.5, "blind_below": 0.1, "min_groups": 8},
)
def false_revival(given: DetectorInput) -> list[Finding]:
    """A paid component that makes more than 30% (critical 50%) of the within-group reward variance, while its
    within-group correlation with correctness is below 0.1 (within one standard error, 1 / sqrt(n))."""
    b, weights = given.batch, given.context.weights
    if not weights or len(weights) < 2:
        return []
    if int(dead_masks(b)["scored"].sum()) < given.thresholds["min_groups"]:
        return []
    out = []
    for name, share in variance_shares(b, weights).items():
        # a penalty (negative weight) points towards correctness where its component is higher on wrong rollouts
        signed = np.sign(weights[name]) * b.component(name)
        r = within_correlation(signed, b.truth, b.group, b.n_groups)
        severity = given.level(share)
        known = int((~np.isnan(signed) & ~np.isnan(b.truth)).sum())
        # the standard error of a correlation near 0 is 1 / sqrt(n): what one of it may explain counts as blind
        if severity is None or r is None or r - 1 / np.sqrt(max(1, known)) >= given.thresholds["blind_below"]:
            continue
        swing = np.abs(np.nan_to_num(centred(b.component(name), b.group, b.n_groups)))
        strongest = np.argsort(-swing)[:2]
        quotes = [given.quote(int(i), note=f"{name} = {b.component(name)[i]:.3g}") for i in strongest]
        claim = (
            f"{share:.0%} of the reward variance within groups is {name}, whose correlation with correctness is {r:.2f}"
        )
        out.append(given.finding(severity, claim, {"variance_share": share, "correlation": r}, quotes))
    return out


@detector(layer="signal", needs=["components"], thresholds={"warn": 0.95, "min_rollouts": 32})
def constant_bonus(given: DetectorInput) -> list[Finding]:
    """A paid component with one and the same non-zero value on at least 95% of the rollouts it applies to.

    A policy that solves everything makes its correctness component constant, too: components that correctness
    explains (mean within 5 points of accuracy) are saturation, not a bonus.
    """
    weights = given.context.weights
    if not weights:
        return []
    accuracy = nan_or(given.value("accuracy"))
    out = []
    for name, weight in weights.items():
        x = given.batch.component(name)
        x = x[~np.isnan(x)]
        if len(x) < given.thresholds["min_rollouts"]:
            continue
        values, counts = distinct(np.round(x, 9))
        mode, share = float(values[counts.argmax()]), float(counts.max()) / len(x)
        # a component as frequent as correctness is correctness by another name; where all is solved it is rightly
        # constant
        if share < given.thresholds["warn"] or mode == 0 or abs(float(x.mean()) - accuracy) < 0.05:
            continue
        earned = np.isclose(given.batch.component(name), mode)
        claim = f"{share:.0%} of rollouts earn the same {name} = {mode:.3g} (weight {weight:g}): it is a constant"
        quotes = given.quote_where(earned & (given.batch.truth < 0.5), f"incorrect, yet paid {name} = {mode:.3g}", 2)
        out.append(given.finding("warn", claim, {"coverage": share, "value": mode, "weight": weight}, quotes))
    return out


@detector(layer="signal", thresholds={"critical": 0.99, "min_steps": 3, "min_rollouts": 16})
def dead_training(given: DetectorInput) -> list[Finding]:
    """Nothing is learnt: at least 99% of stored advantages are 0, or every group had zero variance in each of the
    last 3 steps."""
    limit = given.thresholds["critical"]
    a = given.batch.advantage[~np.isnan(given.batch.advantage)]
    if len(a) >= given.thresholds["min_rollouts"]:
        share = float((np.abs(a) < 1e-9).mean())
        if share >= limit:
            # NaN is "filtered", not 0: such rollouts were not trained on and are no evidence here
            zero = np.abs(np.nan_to_num(given.batch.advantage, nan=1.0)) < 1e-9
            claim = f"{share:.0%} of {len(a)} stored advantages are 0: the loss has no gradient"
            return [
                given.finding("critical", claim, {"zero_advantage": share}, given.quote_where(zero, "advantage 0", 2))
            ]
    steps = int(given.thresholds["min_steps"])
    # the curve as well: trainers that store no advantages still log this one
    dead = given.context.series("frac_reward_zero_std")[-steps:]
    if len(dead) == steps and min(dead) >= limit:
        claim = f"every group was dead in the last {steps} training steps"
        return [given.finding("critical", claim, {"frac_reward_zero_std": min(dead), "steps": steps})]
    return []


@detector(layer="signal", thresholds={"warn": 0.02, "critical": 0.1, "min_faults": 2, "confidence": 0.95})
def infrastructure(given: DetectorInput) -> list[Finding]:
    """Rollouts with an infrastructure fault: warn above 2% (and one standard error above 1%), critical above 10%. They
    count in no rate."""
    faults, n = given.batch.n_faults, given.batch.n + given.batch.n_faults
    if faults < given.thresholds["min_faults"]:
        return []
    rate = faults / n
    severity = given.level_of(faults, n)
    # one standard error of a binomial share: two faults in 90 are above 2% by chance often enough
    if severity is None or rate - np.sqrt(rate * (1 - rate) / n) < given.thresholds["warn"] / 2:
        return []
    flag_rows("infrastructure", given.batch, given.batch.fault_rows)
    worst = sorted(given.batch.faults.items(), key=lambda kv: -kv[1])[:3]
    claim = f"{faults} of {n} rollouts failed for the infrastructure: " + ", ".join(f"{v}x {k}" for k, v in worst)
    quotes = [
        Quote(rollout=clean(name_of(r), 80), text=clean(r.error or r.error_kind, 200))
        for r in given.batch.source.rollouts(given.batch.fault_rows[:2].tolist())
    ]
    return [given.finding(severity, claim, {"error_rate": faults / n, "faults": faults}, quotes)]


@detector(
    kind="infrastructure",
    layer="signal",
    thresholds={"warn": 0.002, "critical": 0.05, "min_faults": 3, "excess": 3.0, "read": 500},
)
def void_gradings(given: DetectorInput) -> list[Finding]:
    """Void gradings that stand together in few groups: a machine fails anywhere, a program that brings its own grading
    down does so again, and the failure is missing from every mean.

    Seen where faults share their group with another one `excess` times as often as chance would have it,
    (k - 1) * rate.
    """
    limits, b = given.thresholds, given.batch
    rows = b.fault_rows[: int(limits["read"])].tolist()
    rows = [i for i, kind in zip(rows, b.source.column("error_kind", rows), strict=True) if kind == "sandbox"]
    n = b.n + b.n_faults
    if len(rows) < limits["min_faults"]:
        return []
    found = b.source.rollouts(rows)
    per_group = Counter(r.group for r in found)
    together = sum(c for c in per_group.values() if c > 1) / len(found)
    size = max(2.0, n / max(1, b.n_groups))
    # chance that one of the other size - 1 rollouts of a fault's group is a fault, were faults spread at random
    by_chance = min(1.0, (size - 1) * len(found) / n)
    severity = given.level(len(found) / n)
    # half at least: with few faults three times chance may still be one pair
    if severity is None or together < limits["excess"] * by_chance or together < 0.5:
        return []
    tasks = len({r.task for r in found if per_group[r.group] > 1})
    claim = (
        f"{len(found)} of {n} gradings are void, {together:.0%} of them beside another one of the same group "
        f"({tasks} tasks; by chance {by_chance:.0%}): what the policy writes there may bring them about, "
        "and they are in no mean"
    )
    flag_rows("void_gradings", b, np.array(rows, np.int64))
    quotes = [Quote(rollout=clean(name_of(r), 80), text=clean(r.error or "sandbox", 200)) for r in found[:2]]
    numbers = {"void_rate": len(found) / n, "together": together, "by_chance": by_chance, "tasks": float(tasks)}
    return [given.finding(severity, claim, numbers, quotes)]

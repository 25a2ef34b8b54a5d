"""Backtest: replay a proposed change over stored rollouts, before compute is spent.

Every rollout stores all reward components, also those without weight, so a reward change can be recomputed exactly.
What acts through the optimizer or other environment knobs cannot; such changes are `silent`, with the reason. The rule
behind each verdict is in the docstring of its replay; a new factor is a new function with `@replays`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from evotrainer.algorithm.advantages import group_std
from evotrainer.errors import ConfigError
from evotrainer.factors import family_members
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import Floats, centred, finite, within_correlation
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.detectors.validity import invalid_mask
from evotrainer.harness.whatif import factor_replays as factor_replays  # registers its replays
from evotrainer.harness.whatif.forecast import REPLAYED, forecast, held_against
from evotrainer.harness.whatif.replay import (
    BLIND,
    CONSTANT,
    REPLAYS,
    SEEING,
    Answer,
    Outcome,
    ReplayInput,
    compose,
    dead,
    order_change,
    order_of,
    parts,
    replays,
)
from evotrainer.harness.whatif.written import scored
from evotrainer.records.interventions import Backtest, Intervention
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout

MIN_GROUPS = 8
WRITTEN = "written_reward"
CODE = (WRITTEN, "hooks")
"""Factors that hold code: what ends a change of theirs has a label."""


def backtest(
    intervention: Intervention,
    parent: Recipe,
    rollouts: Iterable[Rollout] | Batch,
    context: HarnessContext | None = None,
) -> Backtest:
    """Replay `intervention` on rollouts of the parent's policy (search or train split).

    Verdict: `supports`, `contradicts` (the loop vetoes it) or `silent`. A change that is no valid recipe is
    contradicted with the complaint, and so is one whose own prediction cannot come true by what is replayed
    (`forecast.held_against`). Infrastructure faults are left out.
    """
    factor = intervention.factor
    batch = Batch.of(rollouts)
    paid: list[str] = []

    def answer(verdict: Outcome, reason: str, numbers: Mapping[str, float] | None = None, **more: Any) -> Backtest:
        known = {k: finite(v) for k, v in (numbers or {}).items()}
        # rounded: verification recomputes these on other machines, whose sums differ in their last bits
        kept = {k: round(x, 6) for k, x in known.items() if x is not None}
        if paid:
            reason = f"{reason}; {', '.join(paid)} is the outcome and may not be paid: the loop refuses to train this"
        return Backtest(factor=factor, verdict=verdict, reason=reason, numbers=kept, rollouts=batch.n, **more)

    try:
        child = parent.with_factor(factor, intervention.new)
    except ConfigError as e:
        return answer("contradicts", f"not a valid recipe: {e}")
    paid = [c for c, w in sorted(child.rewards.items()) if w and c in context.unpayable] if context else []
    if child == parent:
        return answer("contradicts", f"{factor} already has this value: nothing would change")
    replay = REPLAYS.get(factor)
    if replay is None and factor not in REPLAYED:
        why = (
            "other environment knobs than the stored rollouts' are needed"
            if factor.startswith("knobs.")
            else "it acts through training"
        )
        return answer("silent", f"{factor} cannot be replayed on stored rollouts: {why}")
    known = scored(batch, parent, child, context or HarnessContext())
    if known.why:
        return answer("contradicts" if known.label else "silent", known.why, label=known.label)
    batch = known.batch
    if batch.n_groups < MIN_GROUPS or not batch.has("groups"):
        return answer(
            "silent", f"{batch.n} rollouts in {batch.n_groups} groups are too few; at least {MIN_GROUPS} groups of two"
        )
    x = ReplayInput(batch, parent, child, context or HarnessContext())
    verdict, reason, numbers = replay(x) if replay else ("silent", f"{factor} changes how strongly groups pull", {})
    expected = _rounded(forecast(x, numbers, factor)) if batch.has("outcome") else None
    agreement, why, moved = held_against(intervention.prediction, x, numbers, factor)
    if moved is not None:
        numbers = numbers | {"predicted_before": moved.before, "predicted_after": moved.after, "predicted_se": moved.se}
    # the replay's own verdict comes first; a prediction that cannot come true overrules support and silence
    if agreement == "contradicts" and verdict != "contradicts":
        verdict, reason = "contradicts", f"its own prediction cannot come true: {why} ({reason})"
    label = "backtest_contradicted" if verdict == "contradicts" and factor in CODE else ""
    return answer(verdict, reason, numbers, forecast=expected, prediction=agreement, label=label)


def _rounded(x: float | None) -> float | None:
    """Six decimals, as the numbers; None for what is no number."""
    known = finite(x)
    return None if known is None else round(known, 6)


@replays(*family_members("reward"))
def reward_change(x: ReplayInput) -> Answer:
    """Rewards recomputed under both recipes.

    Contradicts, in this order: the advantages stay the same up to a factor that group scaling removes; 95% of groups
    would have zero variance; an added or re-weighted component has one value on 95% of rollouts; a changed component
    makes over half of the within-group variance at a correlation with correctness below 0.1; misranked (correct,
    incorrect) pairs rise by more than 1 point and 2 standard errors; known-invalid rollouts would be paid better.
    Supports: misranked pairs fall by more than 1 point and 2 standard errors; or at least 10% of the zero-variance
    groups (3 or more) are revived by components that correlate with correctness (0.2); or a constant or blind
    component goes. Silent otherwise, and where components or outcomes are not stored.
    """
    b = x.batch
    unstored = sorted(c for c, w in {**x.old.rewards, **x.new.rewards}.items() if w and c not in b.component_names)
    if unstored:
        return "silent", f"component {', '.join(unstored)} is not stored in these rollouts", {}
    if x.old.length != x.new.length and not b.has("tokens"):
        return "silent", "token counts are not stored in these rollouts", {}
    old, new = compose(b, x.old), compose(b, x.new)
    numbers = _reward_numbers(b, x, old, new)
    return *_reward_verdict(x, numbers, old, new), numbers


def _weights(recipe: Recipe) -> dict[str, float]:
    return {k: w for k, w in recipe.rewards.items() if w}


def _changed(x: ReplayInput) -> list[str]:
    """Components whose weight differs."""
    a, c = _weights(x.old), _weights(x.new)
    return sorted(k for k in a.keys() | c.keys() if a.get(k) != c.get(k))


def _reward_numbers(b: Batch, x: ReplayInput, old: Floats, new: Floats) -> dict[str, float]:
    scored, dead_old = dead(b, old)
    dead_new = dead(b, new)[1]
    n = max(1, int(scored.sum()))
    was_dead = int((scored & dead_old).sum())
    revived = scored & dead_old & ~dead_new
    order_old, order_new = order_of(b, old), order_of(b, new)
    change, se = order_change(b, order_old, order_new)
    stored = b.reward[~np.isnan(b.reward)]
    numbers = {
        "dead_before": was_dead / n,
        "dead_after": float((scored & dead_new).sum()) / n,
        "revived_groups": float(revived.sum()),
        "revived_share": float(revived.sum()) / was_dead if was_dead else 0.0,
        "killed_groups": float((scored & ~dead_old & dead_new).sum()),
        "misranked_before": order_old.misranked,
        "misranked_after": order_new.misranked,
        "misranked_change": change,
        "misranked_se": se,
        "inverted_before": order_old.strictly,
        "inverted_after": order_new.strictly,
        "pairs": float(order_old.total),
        "correlation_before": _or_nan(within_correlation(old, b.truth, b.group, b.n_groups)),
        "correlation_after": _or_nan(within_correlation(new, b.truth, b.group, b.n_groups)),
        "same_order": _or_nan(within_correlation(old, new, b.group, b.n_groups)),
        "stored_agreement": float((np.abs(b.reward - old)[~np.isnan(b.reward)] < 1e-6).mean())
        if len(stored)
        else math.nan,
    }
    both = {**dict.fromkeys(_weights(x.old), 0.0), **_weights(x.new)}
    removed = {k: w for k, w in _weights(x.old).items() if k not in _weights(x.new)}
    for name, p in {**parts(b, removed, old), **parts(b, _weights(x.new), new)}.items():
        numbers[f"variance_share.{name}"] = p.variance_share if name in x.new.rewards and both[name] else 0.0
        numbers[f"correlation.{name}"] = p.correlation
        numbers[f"modal_share.{name}"] = p.modal_share
        numbers[f"coverage.{name}"] = coverage(b, name)
    for name, p in parts(b, _weights(x.old), old).items():
        numbers[f"variance_share_before.{name}"] = p.variance_share
    for name, count in _revivers(b, _weights(x.new), revived).items():
        numbers[f"revived_by.{name}"] = float(count)
    return numbers | _invalid_pay(b, old, new)


def coverage(b: Batch, component: str) -> float:
    """Share of rollouts that earn something by a component, among those it applies to; NaN where it applies to none."""
    x = b.component(component)
    known = x[~np.isnan(x)]
    return float((np.abs(known) > 1e-9).mean()) if len(known) else math.nan


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _revivers(b: Batch, weights: dict[str, float], revived: np.ndarray) -> dict[str, int]:
    """Which component gives most of the new spread, counted over revived groups."""
    if not revived.any() or not weights:
        return {}
    names = list(weights)
    # per component alone: which of them would have given the group any spread without the others
    spread = np.stack([group_std(weights[c] * np.nan_to_num(b.component(c)), b.group, b.n_groups) for c in names])
    spread = spread[:, revived]
    lead = spread.argmax(axis=0)[spread.max(axis=0) > 0]
    return {names[i]: int((lead == i).sum()) for i in np.unique(lead)}


def _invalid_pay(b: Batch, old: Floats, new: Floats) -> dict[str, float]:
    """Share of known-invalid rollouts paid above their group's mean, before and after."""
    mask = invalid_mask(b)
    # special-cased programs count as invalid here: paying them better is what a reward change must not do
    mask |= b.trait("special") == 1
    if not mask.any():
        return {"invalid": 0.0}
    above = [float((centred(r, b.group, b.n_groups)[mask] > 1e-9).mean()) for r in (old, new)]
    return {"invalid": float(mask.sum()), "invalid_paid_before": above[0], "invalid_paid_after": above[1]}


def _reward_verdict(x: ReplayInput, m: dict[str, float], old: Floats, new: Floats) -> tuple[Outcome, str]:
    changed = _changed(x)
    # same_order is a correlation within groups: 1 means new = a * old + b with a > 0 (up to rounding)
    if (
        x.new.reward_scaling == "group"
        and not x.new.hooks
        and m["same_order"] > 1 - 1e-9
        and m["dead_before"] == m["dead_after"]
    ):
        return (
            "contradicts",
            "within every group the rewards only change scale, which group scaling removes: same gradient",
        )
    if m["dead_after"] >= CONSTANT:
        return "contradicts", f"{m['dead_after']:.0%} of groups would be dead: no gradient"
    for c in changed:
        if x.new.rewards.get(c) and m[f"modal_share.{c}"] >= CONSTANT:
            return (
                "contradicts",
                f"{c} has one value on {m[f'modal_share.{c}']:.0%} of rollouts: a constant gives no signal",
            )
    for c in changed:
        share, r = m[f"variance_share.{c}"], m[f"correlation.{c}"]
        if x.new.rewards.get(c) and share > 0.5 and r < BLIND:
            return "contradicts", (
                f"{share:.0%} of the reward variance within groups would come from {c}, whose correlation with "
                f"correctness is {r:.2f}"
            )
    # both: 2 standard errors on many pairs may be a tenth of a point, 1 point on few pairs may be chance
    margin = max(0.01, 2 * m["misranked_se"]) if math.isfinite(m["misranked_se"]) else math.inf
    change = m["misranked_change"]
    ranks = f"(correct, incorrect) pairs ranked wrongly: {m['misranked_before']:.1%} -> {m['misranked_after']:.1%}"
    if change > margin:
        return "contradicts", f"{ranks} over {m['pairs']:.0f} pairs"
    if m["invalid"] >= 3 and m["invalid_paid_after"] > m["invalid_paid_before"] + 0.1:
        return "contradicts", (
            f"{m['invalid']:.0f} known-invalid rollouts would be paid better: {m['invalid_paid_before']:.0%} -> "
            f"{m['invalid_paid_after']:.0%} of them above their group's mean"
        )
    return _reward_support(x, m, changed, margin, ranks)


def _reward_support(
    x: ReplayInput, m: dict[str, float], changed: list[str], margin: float, ranks: str
) -> tuple[Outcome, str]:
    dead_text = f"dead groups {m['dead_before']:.0%} -> {m['dead_after']:.0%}"
    if math.isnan(m["misranked_change"]):
        return "silent", f"no group holds both a correct and an incorrect rollout; {dead_text}"
    if m["misranked_change"] < -margin:
        return "supports", f"{ranks}; {dead_text}"
    # revived groups are worth nothing if they are ordered by chance: the ranking must not have become worse
    if m["misranked_change"] <= 0.005:
        seeing = [c for c in changed if x.new.rewards.get(c) and m[f"correlation.{c}"] >= SEEING]
        if seeing and m["revived_share"] >= 0.1 and m["revived_groups"] >= 3:
            return "supports", f"{dead_text}: {m['revived_groups']:.0f} groups revived by {', '.join(seeing)}; {ranks}"
        for c in changed:
            gone = not x.new.rewards.get(c)
            if gone and (m[f"modal_share.{c}"] >= CONSTANT or m[f"correlation.{c}"] < BLIND):
                return "supports", f"{c} goes, which is constant or blind to correctness; {ranks}"
    return "silent", f"{ranks}; {dead_text}: too little to tell"

"""Backtest: replay a proposed change over stored rollouts, before compute is spent.

Every rollout stores all reward components, also those without weight, so a reward change can be recomputed exactly.
What acts through the optimizer or other environment knobs cannot; such changes are `silent`, with the reason. The rule
behind each verdict is in the docstring of its replay; a new factor is a new function with `@replays`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evotrainer.algorithm.advantages import ZERO_STD, group_std, no_spread
from evotrainer.errors import ConfigError
from evotrainer.factors import FACTORS, family_members
from evotrainer.harness.columns import numerics
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import Floats, centred, finite, within_correlation
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.detectors.validity import invalid_mask
from evotrainer.harness.whatif import factor_replays as factor_replays
from evotrainer.harness.whatif.replay import (
    BLIND,
    CONSTANT,
    REPLAYS,
    SEEING,
    Answer,
    Outcome,
    ReplayInput,
    compose,
    compose_or_stored,
    dead,
    order_change,
    order_of,
    parts,
    replays,
    rewards_of,
    task_weights,
    trained_advantages,
    trained_groups,
)
from evotrainer.harness.whatif.written import scored
from evotrainer.records.interventions import Backtest, Intervention, Prediction
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout

HOPE = 0.5
"""What a spread counts in groups whose outcomes do not differ, against the same spread where they do."""
MARGIN = 0.01
"""Moves smaller than this contradict nothing, whatever their standard error."""

Agreement = Literal["", "agrees", "open", "contradicts"]

REPLAYED = frozenset(name for name, row in FACTORS.items() if row.replay == "advantages")
"""Factors whose advantages can be recomputed on stored rollouts."""


def quality(batch: Batch, reward: Floats, recipe: Recipe) -> float:
    """Signal over noise of a step on these rollouts under a recipe: sum(A s) / sqrt(n sum(A^2)).

    A: advantages (N,), 0 where filter or mask leave nothing. s: outcome minus the group's mean outcome; in groups whose
    outcomes do not differ, HOPE times what the reward's spread means for the outcome in the other groups. sum(A s) is
    the first-order gain in correctness of a policy-gradient step, sqrt(sum(A^2)) its noise; a change of scale alone
    changes nothing, as with Adam. A curriculum draws other tasks in place of what it leaves out, so all sums are
    weighted by how often it draws a task; what a filter drops is not replaced.
    """
    drawn = task_weights(batch, recipe.curriculum)[batch.task]
    a = trained_advantages(batch, recipe, reward)
    if recipe.mask_truncated:
        a[np.nan_to_num(batch.truncated) > 0.5] = 0.0
    y = np.nan_to_num(centred(batch.truth, batch.group, batch.n_groups))
    r = np.nan_to_num(centred(reward, batch.group, batch.n_groups))
    scored, alike = no_spread(batch.truth, batch.group, batch.n_groups)
    mixed = (scored & ~alike)[batch.group]
    spread = float((r[mixed] ** 2).sum())
    # least squares through 0: what a unit of reward is worth in correctness where both vary; a reward that points the
    # wrong way is worth nothing, not less
    slope = max(0.0, float((r[mixed] * y[mixed]).sum()) / spread) if spread > 1e-12 else 0.0
    # all-fail and all-pass groups may still be ordered rightly by a partial reward; half of what that is worth
    # elsewhere
    s = np.where(mixed, y, HOPE * slope * r)
    norm = float((a * a * drawn).sum())
    n = float(drawn.sum())
    return float((a * s * drawn).sum()) / math.sqrt(norm * n) if norm > 1e-12 and n else 0.0


def forecast(x: ReplayInput, numbers: Mapping[str, float], factor: str) -> float | None:
    """Expected change of one step's signal over noise, in units of what paying for correctness itself would give.

    0: nothing changes; negative: worse. An ordering score, no number of points. None where the replay says nothing
    about this factor, outcomes are unknown, or no group holds both outcomes.
    """
    b = x.batch
    # the unit: paying 0/1 for the outcome itself, under the parent's scaling
    ideal = quality(b, b.truth, Recipe(reward_scaling=x.old.reward_scaling))
    if ideal <= 0:
        return None
    if factor == "max_tokens":
        cut = numbers.get("correct_cut")
        return -cut if cut is not None and x.new.max_tokens < x.old.max_tokens else None
    if factor not in REPLAYED | {"group_size", "resample"}:
        return None
    reward = compose_or_stored(x)
    old = quality(b, reward, x.old)
    if factor == "group_size":
        return old * (_size_gain(x, numbers) - 1) / ideal if numbers.get("dead_before") is not None else None
    if factor == "resample":
        keep, filled = numbers.get("keep_rate", 0.0), numbers.get("filled_after", 0.0)
        # signal over noise grows with the root of the batch, and resampling fills more of it
        before = 1 - (1 - keep) ** (x.old.resample + 1)
        return old * (math.sqrt(filled / before) - 1) / ideal if before > 0 else None
    rewards = rewards_of(x)
    if rewards is None:
        return None
    return (quality(b, rewards[1], x.new) - old) / ideal


def _size_gain(x: ReplayInput, numbers: Mapping[str, float]) -> float:
    # signal over noise grows with the root of the rollouts that give a gradient
    alive = (1 - numbers["dead_after"]) / max(1e-9, 1 - numbers["dead_before"])
    return math.sqrt(x.new.group_size / x.old.group_size * max(0.0, alive))


# -- predictions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shift:
    """A metric before and after, as replayed, over what is trained on."""

    before: float
    after: float
    se: float
    """Of the change, clustered by task."""
    se_before: float
    share: bool
    """Does it lie in [0, 1]?"""

    @property
    def change(self) -> float:
        return self.after - self.before


def shift(x: ReplayInput, metric: str, numbers: Mapping[str, float], factor: str) -> Shift | None:
    """How a metric would move on the stored rollouts; None where the replay cannot see it."""
    b = x.batch
    if factor == "group_size":
        if metric != "frac_reward_zero_std" or "dead_before" not in numbers:
            return None
        p, q = numbers["dead_before"], numbers["dead_after"]
        # binomial error of a share of groups, before and after taken as independent (they are alike, so this is
        # cautious)
        error = [v * (1 - v) / max(1, b.n_groups) for v in (p, q)]
        return Shift(p, q, math.sqrt(sum(error)), math.sqrt(error[0]), True)
    if factor not in REPLAYED - {"reward_scaling", "mask_truncated"}:
        return None
    rewards = rewards_of(x)
    if rewards is None:
        return None
    was, then = _values(b, metric, rewards[0], x.old), _values(b, metric, rewards[1], x.new)
    if was is None or then is None:
        return None
    (before, r0), (after, r1) = _ratio(*was), _ratio(*then)
    if math.isnan(before) or math.isnan(after):
        return None
    task = b.task[b.first]
    # the change's error from the same groups on both sides, paired: their common noise cancels
    return Shift(before, after, _error(r1 - r0, task), _error(r0, task), metric != "reward_std")


def _values(batch: Batch, metric: str, reward: Floats, recipe: Recipe) -> tuple[Floats, Floats] | None:
    """(value, weight) of each group, shape (G,); None for metrics that a replay does not move."""
    scored, is_dead = dead(batch, reward)
    trained = (trained_groups(batch, recipe, reward) & scored) * task_weights(batch, recipe.curriculum)[
        batch.task[batch.first]
    ]
    if metric == "frac_reward_zero_std":
        return is_dead.astype(float), trained
    if metric == "reward_std":
        return np.nan_to_num(numerics.population_std(reward, batch.group, batch.n_groups)), trained
    if metric == "filter_keep_rate":
        return trained, scored.astype(float)
    if metric == "misranked_pairs":
        order = order_of(batch, reward)
        return order.wrong / np.maximum(order.pairs, 1), order.pairs * trained
    return None


def _ratio(values: Floats, weights: Floats) -> tuple[float, Floats]:
    """(weighted mean, each group's part in its error), NaN without weight."""
    total = float(weights.sum())
    if total <= 0:
        return math.nan, np.zeros_like(values)
    mean = float((values * weights).sum()) / total
    # linearisation of a ratio of sums (delta method): its parts add up by task to the clustered error
    return mean, (values - mean) * weights / total


def _error(parts: Floats, task: np.ndarray) -> float:
    """Standard error of a sum of parts (G,), clustered by task (G,)."""
    sums = np.bincount(task, weights=parts)
    c = len(np.unique(task))
    return math.sqrt(c / (c - 1) * float((sums**2).sum())) if c > 1 else math.inf


def held_against(
    prediction: Prediction, x: ReplayInput, numbers: Mapping[str, float], factor: str
) -> tuple[Agreement, str, Shift | None]:
    """Can the prediction come true, by what is replayed?

    contradicts: the metric moves the other way, by more than 1 point and 2 standard errors; or the predicted size is
    more than there is room for (a share cannot pass 0 or 1), beyond 2 standard errors of where it stands. agrees: the
    replayed move alone reaches the size. open: in between; a smaller move contradicts nothing, training may add to it.
    Empty where the replay does not see the metric.
    """
    s = shift(x, prediction.metric, numbers, factor)
    if s is None:
        return "", "", None
    sign = 1 if prediction.direction == "up" else -1
    claim = f"predicted {prediction.metric} {prediction.direction} by {prediction.size:g}"
    moved = f"{claim}; replayed {s.before:.3g} -> {s.after:.3g}"
    if sign * s.change < -max(MARGIN, 2 * s.se):
        return "contradicts", f"{moved}: the other way", s
    room = (1 - s.before) if sign > 0 else s.before
    if s.share and prediction.size > room + 2 * s.se_before + 1e-9:
        return "contradicts", f"{claim}, but it stands at {s.before:.3g}: there is no room for that", s
    if sign * s.change >= prediction.size and prediction.size > 0:
        return "agrees", moved, s
    return "open", moved, s


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
    (`held_against`). Infrastructure faults are left out.
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
    return float((np.abs(known) > ZERO_STD).mean()) if len(known) else math.nan


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

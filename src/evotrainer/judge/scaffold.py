"""How much of a gain the scaffold alone explains: the base policy, untrained, with the texts of both sides.

A branch with other texts around its tasks (system prompt, tool descriptions, format of observations) changes what its
policy reads as well as its weights. What the texts do without any training is measured on the policy that training
starts from, and the verdict names it beside the gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from evotrainer.judge.stats import scores_of, t_quantile
from evotrainer.records.events import TrialFinished
from evotrainer.records.verdicts import Effect, GateResult

CONFIDENCE = 0.95
"""Two-sided, over tasks."""


@dataclass(frozen=True, slots=True)
class ScaffoldControl:
    """Two evaluations of the base policy, untrained; None where there is none."""

    before: TrialFinished | None
    """With the control's texts."""
    after: TrialFinished | None
    """With the branch's."""


def alone(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What the texts do to the base policy, by task scores without and with them: `base`, `base_with_scaffold`, `alone`
    (their paired difference) with `low` and `high`; empty where fewer than two tasks were scored both ways."""
    tasks = sorted(before.keys() & after.keys())
    if len(tasks) < 2:
        return {}
    d = np.array([after[t] - before[t] for t in tasks])
    mean, se = float(d.mean()), float(d.std(ddof=1) / len(d) ** 0.5)
    half = t_quantile(0.5 + CONFIDENCE / 2, len(d) - 1) * se
    start = float(np.mean([before[t] for t in tasks]))
    return {
        "base": start,
        "base_with_scaffold": start + mean,
        "alone": mean,
        "low": mean - half,
        "high": mean + half,
        "se": se,
        "tasks": float(len(tasks)),
    }


def gate(given: ScaffoldControl, effect: Effect, split: str) -> GateResult:
    """True where the branch gains more than its scaffold alone does, None where that cannot be told apart or was not
    measured, False where the scaffold alone gains as much. It refuses nothing: a scaffold that helps is a gain, told as
    what it is."""
    sides = [scores_of([x] if x else [], split) for x in (given.before, given.after)]
    found = alone(*(next(iter(s.values()), {}) for s in sides))
    if not found:
        message = "the policy and its scaffold changed, and what the scaffold does alone was not measured"
        return GateResult(gate="scaffold", passed=None, message=message)
    beyond, doubt = effect.mean - found["alone"], (effect.se**2 + found["se"] ** 2) ** 0.5
    sure = t_quantile(0.5 + CONFIDENCE / 2, max(1.0, min(effect.df, found["tasks"] - 1))) * doubt
    return GateResult(
        gate="scaffold",
        passed=True if beyond > sure else False if beyond <= 0 < effect.mean else None,
        message=f"the policy and its scaffold changed: {describe(found, effect.mean)}",
        numbers=found | {"beyond": beyond},
    )


def describe(found: Mapping[str, float], gain: float) -> str:
    """What the scaffold does alone, and how much of a gain that is."""
    points = f"{100 * found['alone']:+.1f} points [{100 * found['low']:+.1f}, {100 * found['high']:+.1f}]"
    clause = (
        f"the base policy, untrained, scores {100 * found['base_with_scaffold']:.1f}% with the scaffold alone and "
        f"{100 * found['base']:.1f}% without ({points})"
    )
    if gain <= 0:
        return clause
    part = min(1.0, max(0.0, found["alone"] / gain))
    return f"{clause}, which explains {100 * part:.0f}% of the gain of {100 * gain:+.1f}"


def unmeasured(result: GateResult | None) -> bool:
    """Is the scaffold's own part unknown? A promotion stays open then."""
    return result is not None and not result.numbers

"""How much of a gain the scaffold alone explains: the base policy, untrained, with the texts of both sides.

A branch with other texts around its tasks (system prompt, tool descriptions, format of observations) changes what its
policy reads as well as its weights. What the texts do without any training is measured on the policy that training
starts from, and the verdict names it beside the gain.
"""

from __future__ import annotations

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


def gate(given: ScaffoldControl, effect: Effect, split: str) -> GateResult:
    """True where the branch gains more than its scaffold alone does, None where that cannot be told apart or was not
    measured, False where the scaffold alone gains as much. It refuses nothing: a scaffold that helps is a gain, told as
    what it is."""
    sides = [scores_of([x] if x else [], split) for x in (given.before, given.after)]
    before, after = (next(iter(s.values()), {}) for s in sides)
    tasks = sorted(before.keys() & after.keys())
    if len(tasks) < 2:
        message = "the policy and its scaffold changed, and what the scaffold does alone was not measured"
        return GateResult(gate="scaffold", passed=None, message=message)
    d = np.array([after[t] - before[t] for t in tasks])
    mean, se = float(d.mean()), float(d.std(ddof=1) / len(d) ** 0.5)
    half = t_quantile(0.5 + CONFIDENCE / 2, len(d) - 1) * se
    start = float(np.mean([before[t] for t in tasks]))
    share = mean / effect.mean if effect.mean > 0 else 0.0
    beyond, doubt = effect.mean - mean, (effect.se**2 + se**2) ** 0.5
    sure = t_quantile(0.5 + CONFIDENCE / 2, max(1.0, min(effect.df, len(d) - 1))) * doubt
    return GateResult(
        gate="scaffold",
        passed=True if beyond > sure else False if beyond <= 0 < effect.mean else None,
        message=_told(effect, start, mean, mean - half, mean + half, share),
        numbers={
            "base": start,
            "base_with_scaffold": start + mean,
            "alone": mean,
            "low": mean - half,
            "high": mean + half,
            "share": share,
            "beyond": beyond,
            "tasks": float(len(tasks)),
        },
    )


def _told(effect: Effect, start: float, mean: float, low: float, high: float, share: float) -> str:
    points = f"{100 * mean:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
    alone = (
        f"the policy and its scaffold changed: the base policy, untrained, scores {100 * (start + mean):.1f}% with the "
        f"scaffold alone and {100 * start:.1f}% without ({points})"
    )
    if effect.mean <= 0:
        return alone
    part = f"{100 * min(1.0, max(0.0, share)):.0f}%"
    return f"{alone}, which explains {part} of the gain of {100 * effect.mean:+.1f}"


def unmeasured(result: GateResult | None) -> bool:
    """Is the scaffold's own part unknown? A promotion stays open then."""
    return result is not None and not result.numbers

"""Training compute of a branch beside its control's: a gain that was bought with more of it is none of the change.

Compute is the tokens that the trainings sampled and trained on (`TrialFinished.training_tokens`): a count, the same on
an idle and on a busy machine, so that a branch is dearer where the ratio is above the limit. Seconds are told beside
it. Where a trainer counted no tokens, seconds decide (`TrialFinished.training_s`), which differ by some 5 to 10%
between seeds of one recipe: then a one-sided 99% bound on the ratio must be above 1 as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

import numpy as np

from evotrainer.judge.stats import mean_difference
from evotrainer.records.events import TrialFinished
from evotrainer.records.events.trials import training_compute
from evotrainer.records.verdicts import DEARER, GateResult

CONFIDENCE = 0.99
"""One-sided. An error costs a control's trainings, not a wrong verdict: at 0.95 one pair in twenty would pay for it."""


@dataclass(frozen=True, slots=True)
class CostRatio:
    """Geometric mean of the branch's compute over that of the control's."""

    ratio: float
    low: float
    """One-sided 99% bound, over seeds; of counted tokens the ratio itself."""
    counted: bool = False
    """By the tokens sampled and trained on, not by seconds."""

    def above(self, limit: float) -> bool:
        """Is it above the limit, and not by the noise of timing?"""
        return self.ratio > limit and self.low > 1


def cost_ratio(branch: Sequence[TrialFinished], control: Sequence[TrialFinished]) -> CostRatio | None:
    """None where a side has no measured training."""
    sides, counted = training_compute(branch, control)
    if not all(sides):
        return None
    b, c = (np.log(side) for side in sides)
    mean, low = mean_difference(b, c, CONFIDENCE)
    return CostRatio(exp(mean), exp(mean if counted else low), counted)


def seconds_ratio(branch: Sequence[TrialFinished], control: Sequence[TrialFinished]) -> float:
    """Of the geometric means of what the trainings took; both sides were measured."""
    b, c = (np.mean([np.log(s) for t in side if (s := t.training_s)]) for side in (branch, control))
    return exp(b - c)


def gate(branch: Sequence[TrialFinished], control: Sequence[TrialFinished], limit: float) -> GateResult:
    """False where the branch trained dearer than the limit allows."""
    found = cost_ratio(branch, control)
    if found is None:
        return GateResult(gate="compute", passed=None, message="training compute was not measured")
    dearer = found.above(limit)
    message, numbers = f"trained at {found.ratio:.2f} x the control's compute", {"ratio": found.ratio, "low": found.low}
    if found.counted:
        numbers["seconds"] = seconds_ratio(branch, control)
        message += f" in tokens sampled and trained on ({numbers['seconds']:.2f} x its seconds)"
    if dearer:
        message += f", above judge.max_cost={limit:g}: to be compared with a control that is trained for as long"
    elif found.ratio > limit:
        message += f" (at least {found.low:.2f} x: by the noise of timing it is not above judge.max_cost={limit:g})"
    return GateResult(gate="compute", passed=not dearer, message=message, numbers=numbers)


def describe(result: GateResult | None) -> str:
    """What a verdict says of unequal compute; empty where it was equal or unknown."""
    ratio = result.numbers.get("ratio", 1.0) if result else 1.0
    low = result.numbers.get("low", 1.0) if result else 1.0
    return f"at {ratio:.2g} x the control's training compute" if CostRatio(ratio, low).above(DEARER) else ""

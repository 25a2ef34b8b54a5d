"""Training compute of a branch beside its control's: a gain that was bought with more of it is none of the change.

Compute is what the trainings themselves took (`TrialFinished.training_s`), by what the machine's seconds were worth
meanwhile where the trainer measured it (`TrialFinished.work`). It differs by some 5 to 10% between seeds of one recipe:
a branch counts as dearer where the mean ratio is above the limit and a one-sided 99% bound on it above 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

import numpy as np

from evotrainer.judge.stats import mean_difference
from evotrainer.records.events import TrialFinished
from evotrainer.records.events.trials import training_compute
from evotrainer.records.verdicts import GateResult

CONFIDENCE = 0.99
"""One-sided. An error costs a control's trainings, not a wrong verdict: at 0.95 one pair in twenty would pay for it."""
TOLD = 1.05
"""Ratio from which a verdict names it, whatever is allowed."""


@dataclass(frozen=True, slots=True)
class CostRatio:
    """Geometric mean of the branch's compute over that of the control's."""

    ratio: float
    low: float
    """One-sided 99% bound, over seeds."""
    by_pace: bool = False
    """By what the machine's seconds were worth, not by seconds alone."""

    def above(self, limit: float) -> bool:
        """Is it above the limit, and not by the noise of timing?"""
        return self.ratio > limit and self.low > 1


def cost_ratio(branch: Sequence[TrialFinished], control: Sequence[TrialFinished]) -> CostRatio | None:
    """None where a side has no measured training."""
    sides, by_pace = training_compute(branch, control)
    if not all(sides):
        return None
    b, c = (np.log(side) for side in sides)
    mean, low = mean_difference(b, c, CONFIDENCE)
    return CostRatio(exp(mean), exp(low), by_pace)


def gate(branch: Sequence[TrialFinished], control: Sequence[TrialFinished], limit: float) -> GateResult:
    """False where the branch trained dearer than the limit allows."""
    found = cost_ratio(branch, control)
    if found is None:
        return GateResult(gate="compute", passed=None, message="training compute was not measured")
    dearer = found.above(limit)
    message = f"trained at {found.ratio:.2f} x the control's compute"
    if dearer:
        message += f", above judge.max_cost={limit:g}: to be compared with a control that is trained for as long"
    elif found.ratio > limit:
        message += f" (at least {found.low:.2f} x: by the noise of timing it is not above judge.max_cost={limit:g})"
    return GateResult(
        gate="compute", passed=not dearer, message=message, numbers={"ratio": found.ratio, "low": found.low}
    )


def told(result: GateResult | None) -> str:
    """What a verdict says of unequal compute; empty where it was equal or unknown."""
    ratio = result.numbers.get("ratio", 1.0) if result else 1.0
    low = result.numbers.get("low", 1.0) if result else 1.0
    return f"at {ratio:.2g} x the control's training compute" if CostRatio(ratio, low).above(TOLD) else ""

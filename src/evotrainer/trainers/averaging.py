"""Averages of weights over a training: the rule that both trainers follow."""

from __future__ import annotations

import math

from evotrainer.records.recipe import Averaging


def average_weight(rule: Averaging, step: int, steps: int) -> float | None:
    """How much the weights after `step` (1-based) of `steps` count in the running average: mean += a (weights - mean).

    None: not averaged (yet). 1: the average begins. tail_mean: a = 1/n for the n-th of the last ceil(share * steps)
    steps. ema: a = (1 - d) / (1 - d^step), which is the exponential mean without the bias of its start (arXiv
    1412.6980, section 3).
    """
    if rule.kind == "tail_mean":
        n = step - (steps - math.ceil(rule.share * steps))
        return 1.0 / n if n > 0 else None
    if rule.kind == "ema":
        return (1 - rule.decay) / (1 - rule.decay**step)
    return None

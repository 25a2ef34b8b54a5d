"""Which tasks a curriculum draws, by pass rates and difficulty. Arrays, or single numbers, in and out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from evotrainer.algorithm.advantages import Floats
from evotrainer.records.recipe import Curriculum

_Numbers = TypeVar("_Numbers", float, Floats)
EASIEST = 0.2
"""Share of the tasks, easiest ones, that a curriculum by difficulty begins with."""


def band_distance(rate: _Numbers, rule: Curriculum) -> _Numbers:
    """How far a pass rate lies outside the band [low, high]; 0 inside."""
    return np.maximum(np.maximum(rule.low - rate, rate - rule.high), 0.0)


def frontier_weight(rate: _Numbers, floor: float) -> _Numbers:
    """How often a tag's value of this pass rate is drawn, relative to others: max(floor, 4 p (1 - p)), the variance of
    the outcome over its largest (learnability scores, arXiv 2502.12272)."""
    return np.maximum(floor, 4 * rate * (1 - rate))


def easiest_up_to(levels: Sequence[float] | Floats, progress: float) -> float:
    """The difficulty up to which tasks are drawn, of ascending `levels`. `progress`: share of the way from the easiest
    fifth to all tasks, which the share of tasks goes linearly (competence-based curriculum, arXiv 1903.09848)."""
    share = min(1.0, EASIEST + (1 - EASIEST) * progress)
    return float(levels[math.ceil(share * len(levels)) - 1])

"""Which groups of a step give gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from evotrainer.algorithm.advantages import Floats
from evotrainer.records.recipe import GroupFilter


@dataclass(slots=True)
class FilterState:
    """Exponential moving mean and variance of group standard deviations (ema_std), kept across steps."""

    mean: float = 0.0
    var: float = 0.0
    seen: int = 0

    def update(self, std: float, decay: float) -> None:
        if self.seen == 0:
            self.mean, self.var = std, 0.0
        else:
            delta = std - self.mean
            self.mean += decay * delta
            # incremental exponentially weighted variance (Finch 2009)
            self.var = (1 - decay) * (self.var + decay * delta * delta)
        self.seen += 1


def keep_groups(stds: Floats, rule: GroupFilter, state: FilterState) -> NDArray[np.bool_]:
    """Groups that give gradient, shape (G,), by their standard deviations (`group_std`); updates `state` in order.

    zero_variance: s > 0 (DAPO's dynamic sampling, arXiv 2503.14476). snr_top_p: the groups of largest variance that
    together hold the share `keep` of the total (RAGEN-2). ema_std: s >= m - z(keep) sqrt(v), m and v being running mean
    and variance of the groups before it, and of groups with spread only: zeros are always dropped and would drag the
    mean towards accepting anything.
    """
    if rule.kind == "none":
        return np.ones(len(stds), dtype=bool)
    if rule.kind == "zero_variance":
        return stds > 0
    if rule.kind == "snr_top_p":
        return _top_p(stds, rule.keep)
    # as many groups as the mean remembers (1 / decay): before that its statistics are those of a few early groups
    warm = max(20, math.ceil(1 / rule.decay))
    z = NormalDist().inv_cdf(rule.keep) if rule.keep < 1 else math.inf
    keep = np.zeros(len(stds), dtype=bool)
    # one group at a time: the order counts
    for i, s in enumerate(stds.tolist()):
        if s > 0:
            # the quantile above which `keep` of the groups lie, were their stds normal
            bound = state.mean - z * math.sqrt(state.var) if math.isfinite(z) else -math.inf
            keep[i] = state.seen < warm or s >= bound
            state.update(s, rule.decay)
    return keep


def _top_p(stds: Floats, share: float) -> NDArray[np.bool_]:
    var = stds**2
    keep = np.zeros(len(stds), dtype=bool)
    order = np.argsort(-var, kind="stable")
    before = np.cumsum(var[order]) - var[order]
    # groups ahead must hold less than the share, so the one that crosses it is kept; 1e-12 is for sums that round up
    keep[order] = (before < share * var.sum() * (1 - 1e-12)) & (var[order] > 0)
    return keep

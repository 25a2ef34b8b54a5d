"""The bootstrap over seeds and tasks, which is often used, and which the judge does not use."""

from __future__ import annotations

import numpy as np

from evotrainer.judge.stats import Scores, common_tasks, table


def hierarchical_bootstrap(
    branch: Scores, control: Scores, *, confidence: float = 0.95, draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval, resampling tasks and seeds (paired by number where both have the same seeds).

    A cross-check, not the decision: with 3 seeds it is anti-conservative (`results.md`).
    """
    tasks = common_tasks(branch, control)
    b_ST, c_ST = table(branch, tasks), table(control, tasks)
    rng = np.random.default_rng(seed)
    paired = sorted(branch) == sorted(control)
    out = np.empty(draws)
    for i in range(draws):
        # the same draw for both sides keeps what a seed number has in common (order of tasks) inside the difference
        b = rng.integers(0, len(b_ST), len(b_ST))
        c = b if paired else rng.integers(0, len(c_ST), len(c_ST))
        t = rng.integers(0, len(tasks), len(tasks))
        # resample seeds first: the means over a few rows are cheaper than a fancy index of the whole table
        out[i] = (b_ST[b].mean(axis=0) - c_ST[c].mean(axis=0))[t].mean()
    low, high = np.quantile(out, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return float(low), float(high)

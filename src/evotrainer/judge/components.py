"""A run's variance components: what simulated runs are drawn from, and how alike trainings of one seed number are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.judge.simulate import Population
from evotrainer.judge.stats import measure_noise, scores_of, table
from evotrainer.records.events import NoiseMeasured, TrialFinished
from evotrainer.records.frozen import Frozen

TASK_BRANCH_SD = 0.05
"""How differently a change acts on different tasks, where no branch of the run was judged."""


class MeasuredComponents(Frozen):
    """Variance components as a run measured them, score units."""

    tasks: int
    attempts: int
    seed_sd: float
    """Between trainings of one recipe, beyond the attempts' own sampling."""
    seed_sd_high: float
    """Upper end of its two-sided 95% interval (chi-square on the trials' spread)."""
    df: float
    """Degrees of freedom it was measured with."""
    trial_sd: float
    """Between trainings, sampling included."""
    task_branch_sd: float
    task_branch_measured: bool
    difficulties: tuple[float, ...]
    """Chance of success per task: the start's mean over seeds, drawn to the middle by half an attempt."""

    def population(self, **changes: float) -> Population:
        """The simulated run's task set and trainer; `changes` override fields."""
        p = Population(
            tasks=self.tasks,
            attempts=self.attempts,
            seed_sd=self.seed_sd,
            task_branch_sd=self.task_branch_sd,
            measured=self.difficulties,
        )
        return replace(p, **changes)  # type: ignore[arg-type]


def measured(
    start: Sequence[TrialFinished], noise: NoiseMeasured | None, v_task: Sequence[float]
) -> MeasuredComponents:
    """Components of a run: `start` trials of the starting recipe on gate, the pooled `noise`, the verdicts' `v_task`.

    ConfigError where the starting recipe has fewer than two scored trials.
    """
    from scipy.special import chdtri

    scores = scores_of(start, "gate")
    if len(scores) < 2:
        raise ConfigError(f"calibrate: {len(scores)} scored trial(s) of the starting recipe; two or more are needed")
    own = noise or measure_noise("b0", scores)
    common = sorted(set.intersection(*(set(x) for x in scores.values())))
    y_ST = table(scores, common)
    gate = [s for t in start for s in t.scores if s.split == "gate"]
    attempts = max(s.attempts for s in gate)
    # pooled over every branch so far where the run has that: more degrees of freedom than the start's three seeds
    df, v_trial = own.numbers["df"], own.numbers["v_trial"]
    if attempts > 1:
        # p(1 - p) / (n - 1) estimates the variance p(1 - p) / n of a cell without bias; over T tasks the mean has 1 / T
        # of it
        sampling = float((y_ST * (1 - y_ST)).mean()) / (attempts - 1) / len(common)
    else:  # a single attempt says nothing of its own chance, its repetitions under other seeds do
        p_T = y_ST.mean(axis=0)
        sampling = float((p_T * (1 - p_T)).mean()) * len(y_ST) / max(1, len(y_ST) - 1) / len(common)
    n = attempts * len(y_ST)
    # `chdtri` is of the upper tail: 0.975 gives the small quantile, hence the upper end of the variance
    high = v_trial * df / float(chdtri(df, 0.975))
    # an estimate of 0 says that the residual explains all, not that changes act alike: such verdicts measured nothing
    positive = [v for v in v_task if v > 0]
    return MeasuredComponents(
        tasks=len(common),
        attempts=attempts,
        seed_sd=max(0.0, v_trial - sampling) ** 0.5,
        seed_sd_high=max(0.0, high - sampling) ** 0.5,
        df=df,
        trial_sd=v_trial**0.5,
        task_branch_sd=float(np.median(positive)) ** 0.5 if positive else TASK_BRANCH_SD,
        task_branch_measured=bool(positive),
        # drawn to the middle: a task solved in all of n attempts is not certain to be solved in the next
        difficulties=tuple(float(p) for p in (y_ST.mean(axis=0) * n + 0.5) / (n + 1)),
    )


def seed_correlation(pairs: Sequence[tuple[Sequence[TrialFinished], Sequence[TrialFinished]]]) -> float | None:
    """Correlation of branch and control means at the same seed number, pooled over (branch, control) pairs.

    Each side's own mean is taken out. None with fewer than 6 degrees of freedom.
    """
    sxy = sxx = syy = 0.0
    df = 0
    for branch, control in pairs:
        b, c = scores_of(branch, "gate"), scores_of(control, "gate")
        shared = sorted(b.keys() & c.keys())
        # with one shared seed nothing is left after the pair's own mean is taken out
        if len(shared) < 2:
            continue
        x, y = (np.array([np.mean(list(s[i].values())) for i in shared]) for s in (b, c))
        # a pair's own effect is not what is asked about: seeds are alike if they are high and low together
        x, y = x - x.mean(), y - y.mean()
        sxy, sxx, syy, df = sxy + float(x @ y), sxx + float(x @ x), syy + float(y @ y), df + len(shared) - 1
    return sxy / (sxx * syy) ** 0.5 if df >= 6 and sxx > 0 and syy > 0 else None

"""Paired differences with tasks and seeds as random effects.

The model of a score (share of correct attempts of trial seed s of branch b on task t) is

    y[b,s,t] = mu + branch_b + task_t + (task x branch)_bt + seed_bs + residual_bst

Tasks cancel in the paired difference D = mean(branch) - mean(control); what is left is

    Var(D) = v_trial * (1/S_b + 1/S_c) + v_task_branch / T

where v_trial is the variance of a trial's mean score between seeds with the tasks fixed (it holds the residual
already). Three seeds estimate v_trial badly, so it is pooled with every other branch measured in the run, the A/A
trials first; degrees of freedom follow Satterthwaite (1946). `docs/judge.md` says why not a bootstrap over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.records.events import NoiseMeasured, SplitScore, TrialFinished
from evotrainer.records.sealed import SealedSplits
from evotrainer.records.verdicts import Effect

Scores = Mapping[int, Mapping[str, float]]
"""Seed -> task id -> share of correct attempts."""

HETEROSCEDASTIC_P = 0.05
"""Own spread larger than the pool's at this level: the pool does not speak for this branch."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Within-branch sums over an S x T table: squares between trial means, and squares of the two-way residual."""

    ss_trial: float
    df_trial: int
    ss_residual: float
    df_residual: int


@dataclass(frozen=True, slots=True)
class Components:
    """Variance components of one paired comparison, in score units squared."""

    mean: float
    v_trial: float
    df_trial: float
    v_task: float
    """Variance of the task x branch effect (0 where the residual explains all of it)."""
    v_residual: float
    seeds_branch: int
    seeds_control: int
    tasks: int
    own_only: bool
    """True where the pool was set aside because this pair spreads more."""

    def variance(self, seeds_branch: int, seeds_control: int) -> tuple[float, float]:
        """Variance of the difference, and its degrees of freedom, had there been so many seeds."""
        k = 1 / seeds_branch + 1 / seeds_control
        a, b = self.v_trial * k, self.v_task / self.tasks
        # with no task x branch part only the pooled trial variance was estimated, so its degrees of freedom are the
        # sum's
        df = self.df_trial
        if b > 0 and self.tasks > 1:
            # Satterthwaite (1946): the degrees of freedom of a sum of two independent variance estimates
            df = (a + b) ** 2 / (a * a / self.df_trial + b * b / (self.tasks - 1))
        return a + b, df


def scores_of(trials: Sequence[TrialFinished], split: str) -> dict[int, dict[str, float]]:
    """Per-task scores of the complete trials on one split (the last step read), by seed."""
    out: dict[int, dict[str, float]] = {}
    for trial in trials:
        score = split_score(trial, split)
        if trial.status == "complete" and score is not None and score.per_task:
            # a seed that ran twice (lost, then resumed) counts once, with its later trial
            out[trial.seed] = score.per_task
    return out


def split_score(trial: TrialFinished, split: str) -> SplitScore | None:
    """The trial's score on a split, at the latest step where it was read; EncryptedError while it is encrypted."""
    found = [s for s in trial.scores if s.split == split]
    return SealedSplits.readable(max(found, key=lambda s: s.step), trial.trial) if found else None


def common_tasks(*groups: Scores) -> list[str]:
    """Tasks that every trial of every group scored, sorted."""
    # the intersection, not the union: a task that one trial lost would enter the difference unpaired
    sets = [set(per_task) for group in groups for per_task in group.values()]
    return sorted(set.intersection(*sets)) if sets else []


def table(scores: Scores, tasks: Sequence[str]) -> Any:
    """S x T array of scores, seeds ascending."""
    return np.array([[scores[s][t] for t in tasks] for s in sorted(scores)], dtype=np.float64)


def spread(y_ST: Any) -> Spread:
    """Within-branch sums of squares; one seed gives no information and zero degrees of freedom."""
    n_seeds, n_tasks = y_ST.shape
    if n_seeds < 2:
        return Spread(0.0, 0, 0.0, 0)
    trial_S = y_ST.mean(axis=1)
    # two-way additive fit y = mean + seed + task; what is left is attempts' sampling and the seed x task interaction,
    # one number that the table cannot split further
    residual_ST = y_ST - trial_S[:, None] - y_ST.mean(axis=0)[None, :] + y_ST.mean()
    return Spread(
        float(((trial_S - trial_S.mean()) ** 2).sum()),
        n_seeds - 1,
        float((residual_ST**2).sum()),
        (n_seeds - 1) * (n_tasks - 1),
    )


def t_quantile(p: float, df: float) -> float:
    """Quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(df, p))


def t_tail(x: float, df: float) -> float:
    """P(T > x) for Student's t."""
    from scipy.special import stdtr

    return float(stdtr(df, -x))


def measure_noise(
    branch: str,
    scores: Scores,
    *,
    confidence: float = 0.95,
    seeds_per_branch: int = 3,
    earlier: NoiseMeasured | None = None,
) -> NoiseMeasured:
    """Variance components from trials that differ in nothing but the seed; at least two seeds.

    `noise_floor` is the difference that two sets of `seeds_per_branch` such trials do not reach at the (two-sided)
    confidence. With `earlier`, the branch's spread joins what was measured before: each branch counts once.
    """
    if len(scores) < 2:
        raise ConfigError(f"noise of {branch}: {len(scores)} complete trial(s); run at least 2 A/A seeds")
    tasks = common_tasks(scores)
    if not tasks:
        raise ConfigError(f"noise of {branch}: its trials share no scored task; run evotrainer doctor")
    y_ST = table(scores, tasks)
    own = spread(y_ST)
    numbers = dict(earlier.numbers) if earlier else {}
    numbers |= {
        f"ss/{branch}": own.ss_trial,
        f"df/{branch}": float(own.df_trial),
        f"ss_residual/{branch}": own.ss_residual,
        f"df_residual/{branch}": float(own.df_residual),
    }
    ss, df = _pool(numbers, "ss/", "df/")
    ss_r, df_r = _pool(numbers, "ss_residual/", "df_residual/")
    residual = ss_r / df_r if df_r else 0.0
    # a mean over T tasks errs by residual / T at least: seeds that agree better than that were lucky
    var = max(ss / df, residual / len(tasks))
    # 2 var / n: the variance of the difference of two means of n trials each
    floor = t_quantile(0.5 + confidence / 2, df) * (2 * var / seeds_per_branch) ** 0.5
    numbers |= {"df": df, "v_trial": var, "v_residual": residual, "tasks": float(len(tasks))}
    first = earlier or NoiseMeasured(
        branch=branch,
        seeds=tuple(sorted(scores)),
        score_mean=float(y_ST.mean()),
        seed_sd=0.0,
        task_sd=0.0,
        noise_floor=0.0,
    )
    return first.model_copy(
        update={
            "seed_sd": var**0.5,
            # of the difference of two trials on one task
            "task_sd": (2 * residual) ** 0.5,
            "noise_floor": floor,
            "numbers": numbers | {"confidence": confidence, "seeds_per_branch": float(seeds_per_branch)},
        }
    )


def _pool(numbers: Mapping[str, float], ss: str, df: str, skip: Sequence[str] = ()) -> tuple[float, float]:
    """Sums of `ss/<branch>` and `df/<branch>` over the branches not skipped."""
    # "ss/" is no prefix of "ss_residual/", so the two families of keys do not mix
    names = [k.removeprefix(ss) for k in numbers if k.startswith(ss) and k.removeprefix(ss) not in skip]
    return sum(numbers[ss + n] for n in names), sum(numbers.get(df + n, 0.0) for n in names)


def components(
    branch: Scores,
    control: Scores,
    noise: NoiseMeasured | None = None,
    *,
    names: tuple[str, str] = ("", ""),
) -> Components:
    """Variance components of branch minus control over the tasks that all trials scored.

    `names` are the two branches' names, so that their entries in `noise` are not counted twice.
    """
    tasks = common_tasks(branch, control)
    if not tasks:
        raise ConfigError("effect: branch and control share no scored task; evaluate both on the same split")
    b_ST, c_ST = table(branch, tasks), table(control, tasks)
    # within each side, never between them: the difference of the sides is the effect itself and must not enter its own
    # error
    own = [spread(b_ST), spread(c_ST)]
    numbers = noise.numbers if noise else {}
    ss_o, df_o = sum(x.ss_trial for x in own), float(sum(x.df_trial for x in own))
    ss_n, df_n = _pool(numbers, "ss/", "df/", names)
    ss_r, df_r = _pool(numbers, "ss_residual/", "df_residual/", names)
    ss_r, df_r = ss_r + sum(x.ss_residual for x in own), df_r + sum(x.df_residual for x in own)
    if df_o + df_n < 1:
        raise ConfigError("effect: a single trial on each side and no noise measured; run more seeds")
    residual = ss_r / df_r if df_r else 0.0
    # equal variances are what allows pooling; a branch that trains less stably than the A/A trials would look too
    # certain
    own_only = _spreads_more(ss_o, df_o, ss_n, df_n)
    v_trial, df = (ss_o / df_o, df_o) if own_only else ((ss_o + ss_n) / (df_o + df_n), df_o + df_n)
    # Var of a difference of two means of n_b and n_c trials: v * (1 / n_b + 1 / n_c)
    k = 1 / len(b_ST) + 1 / len(c_ST)
    d_T = b_ST.mean(axis=0) - c_ST.mean(axis=0)
    # the spread of the differences over tasks, less what attempts and seeds make of it without any such effect
    v_task = max(0.0, float(d_T.var(ddof=1)) - residual * k) if len(tasks) > 1 else 0.0
    return Components(
        mean=float(d_T.mean()),
        # three lucky seeds cannot agree better than sampling allows
        v_trial=max(v_trial, residual / len(tasks)),
        df_trial=df,
        v_task=v_task,
        v_residual=residual,
        seeds_branch=len(b_ST),
        seeds_control=len(c_ST),
        tasks=len(tasks),
        own_only=own_only,
    )


def _spreads_more(ss_own: float, df_own: float, ss_pool: float, df_pool: float) -> bool:
    """One-sided F test of the pair's spread against the pool's."""
    if not (df_own and df_pool and ss_pool > 0):
        return False
    # scipy.special, not scipy.stats: the latter is slow to import, and its functions are all that is needed
    from scipy.special import fdtrc

    return float(fdtrc(df_own, df_pool, (ss_own / df_own) / (ss_pool / df_pool))) < HETEROSCEDASTIC_P


def effect_of(c: Components, confidence: float) -> Effect:
    """The t interval of a comparison; `low` and `high` each err with probability (1 - confidence) / 2."""
    var, df = c.variance(c.seeds_branch, c.seeds_control)
    q = 0.5 + confidence / 2
    half = t_quantile(q, df) * var**0.5
    k = 1 / c.seeds_branch + 1 / c.seeds_control
    return Effect(
        mean=c.mean,
        low=c.mean - half,
        high=c.mean + half,
        confidence=confidence,
        se=var**0.5,
        df=df,
        seeds=min(c.seeds_branch, c.seeds_control),
        tasks=c.tasks,
        # trial variance alone, without the task x branch part: two sets of A/A trials share every task effect
        noise_floor=t_quantile(q, c.df_trial) * (c.v_trial * k) ** 0.5,
    )


def effect(
    branch: Scores,
    control: Scores,
    noise: NoiseMeasured | None = None,
    confidence: float = 0.95,
    *,
    names: tuple[str, str] = ("", ""),
) -> Effect:
    """Branch minus control with a two-sided interval; see the module's model."""
    return effect_of(components(branch, control, noise, names=names), confidence)


def over_tasks(b: Scores, c: Scores, confidence: float) -> Effect:
    """b minus c, paired by task, the trainings taken as they are: only tasks are a sample, so that it speaks of these
    policies and of no recipe. ConfigError for fewer than two common tasks."""
    tasks = common_tasks(b, c)
    if len(tasks) < 2:
        raise ConfigError(f"{len(tasks)} task(s) in common; an interval over tasks needs two, give more of the same")
    d_T = table(b, tasks).mean(axis=0) - table(c, tasks).mean(axis=0)
    mean, se, df = float(d_T.mean()), float(d_T.std(ddof=1)) / len(tasks) ** 0.5, len(tasks) - 1
    half = t_quantile(0.5 + confidence / 2, df) * se
    return Effect(
        mean=mean,
        low=mean - half,
        high=mean + half,
        confidence=confidence,
        se=se,
        df=df,
        seeds=min(len(b), len(c)),
        tasks=len(tasks),
        # how much trainings differ does not enter
        noise_floor=0.0,
    )


def p_value(e: Effect) -> float:
    """One-sided p of "not better than control"; 0.5 where nothing varies and nothing differs."""
    # all scores equal on both sides: t is 0 / 0, and without any variance there is no evidence either way
    if e.se == 0:
        return 0.5 if e.mean == 0 else float(e.mean < 0)
    return t_tail(e.mean / e.se, e.df)


def asked_at(c: Components, n: int, alpha: float) -> tuple[float, float]:
    """(mean that would be significant at one-sided `alpha` and above the noise floor with `n` seeds per branch, its
    variance). The control grows with the branch where it has fewer seeds."""
    n_control = max(n, c.seeds_control)
    var, df = c.variance(n, n_control)
    # trials that would be run are trials that would be measured: each adds a degree of freedom
    extra = (n - c.seeds_branch) + (n_control - c.seeds_control)
    floor = t_quantile(1 - alpha, c.df_trial + extra) * (c.v_trial * (1 / n + 1 / n_control)) ** 0.5
    return max(t_quantile(1 - alpha, df + extra) * var**0.5, floor), var


def seeds_needed(c: Components, alpha: float, most: int) -> int | None:
    """Seeds per branch at which the observed mean would do (`asked_at`); None: more than `most`."""
    # n + 1 at least: the seeds at hand were judged already and did not suffice. The mean is held where it is
    return next((n for n in range(c.seeds_branch + 1, most + 1) if c.mean > asked_at(c, n, alpha)[0]), None)


def mean_difference(b: np.ndarray, c: np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """Mean difference of two sets of values, one per trial, and its one-sided lower bound (Student, pooled)."""
    mean = float(b.mean() - c.mean())
    df = len(b) + len(c) - 2
    # one trial a side: no spread is known, so a rise can never be shown (the bound is not above 0)
    if df < 1:
        return mean, float(min(mean, 0.0))
    # unpaired and pooled, unlike the effect: such a value is stored per trial, not per task
    ss = float(((b - b.mean()) ** 2).sum() + ((c - c.mean()) ** 2).sum())
    se = (ss / df * (1 / len(b) + 1 / len(c))) ** 0.5
    return mean, mean - t_quantile(confidence, df) * se

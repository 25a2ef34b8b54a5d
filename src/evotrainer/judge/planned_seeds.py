"""How many seeds a branch and its control have before they are judged first: what proves the gain that is expected of
it, by the noise measured so far.

No look is spent on them: the number rests on the spread between seeds and on the search split, never on a gate score's
difference (a sample size that is set again by the variance alone, Wittes and Brittain 1990). So the first look has the
seeds and the level of a whole test, where three seeds under a look of their own find nothing between noisy trainings.
"""

from __future__ import annotations

from collections.abc import Sequence

from evotrainer.judge.stats import t_quantile
from evotrainer.records.briefing import PromotionThreshold
from evotrainer.records.events import NoiseMeasured
from evotrainer.records.verdicts import Effect, Verdict

POWER = 0.8
"""Probability that the first look finds the gain that is expected of a branch."""
SEED_SD, TASK_SD, SAMPLING = 0.02, 0.05, 0.136
"""What is assumed before anything is measured: standard deviation between trainings of one recipe beyond sampling, and
of a change's effect between tasks, in score units; variance of one attempt at a task (mean of p * (1 - p), most tasks
nearly solved or nearly hopeless: Beta(0.6, 0.6), as `simulate.Population` has them)."""


def detectable(tasks: int, attempts: int, seeds: int, level: float, seed_sd: float = SEED_SD) -> float:
    """Gain, score units, that a look at one-sided `level` finds with probability `POWER`, were the noise as assumed.

    `seeds` trainings a side (two at least), each scored by `attempts` at every one of `tasks`. At `seed_sd` 0 it is
    what the sampling alone allows, a lower bound of what a run will find.
    """
    from scipy.special import ndtri

    trial = seed_sd**2 + SAMPLING / (tasks * attempts)
    se = (2 * trial / seeds + TASK_SD**2 / tasks) ** 0.5
    return float((t_quantile(1 - level, 2 * (seeds - 1)) + ndtri(POWER)) * se)


def least_seen(e: Effect) -> float | None:
    """Difference, score units, that a comparison as precise as this one finds at its one-sided level with probability
    `POWER`: the noncentrality at which Student's t exceeds what is asked, times the standard error. None where nothing
    varied, which tells of no precision."""
    from scipy.special import nctdtrinc

    asked = max(e.mean - e.low, e.noise_floor)
    return float(nctdtrinc(e.df, 1 - POWER, asked / e.se)) * e.se if e.se > 0 else None


def threshold(
    noise: NoiseMeasured | None, verdicts: Sequence[Verdict], alpha: float, first: int, seeds: int, min_effect: float
) -> PromotionThreshold | None:
    """Observed gain that a look at level `alpha` promotes with so many seeds on both sides, and its expected standard
    error, score units. None before noise was measured.

    `first`: seeds that a side has anyway; each one more adds a degree of freedom.
    """
    if noise is None or not (df := noise.numbers.get("df")):
        return None
    known = [v.effect for v in verdicts if v.effect is not None and v.effect.se > 0]
    trial = 2 * noise.numbers["v_trial"]
    # between seeds as measured so far; between tasks as past comparisons had it on top
    task = max(0.0, sum(e.se**2 - trial / e.seeds for e in known) / len(known)) if known else 0.0
    se = (trial / seeds + task) ** 0.5
    asked = t_quantile(1 - alpha, df + 2 * max(0, seeds - first)) * se
    return PromotionThreshold(gain=max(min_effect, asked), se=se)


def seeds_for(
    gain: float, noise: NoiseMeasured | None, verdicts: Sequence[Verdict], alpha: float, first: int, most: int
) -> int:
    """Fewest seeds a side, `first` at least, with which the effect of a branch that is worth `gain` is significant with
    probability `POWER`; `most` where no number would do: a spread that few seeds show may be their luck."""
    from scipy.special import ndtr

    for n in range(first, most + 1):
        # without the smallest effect that is asked for: more seeds bring no observed gain above that
        asked = threshold(noise, verdicts, alpha, first, n, 0.0)
        if asked is None or ndtr((gain - asked.gain) / max(asked.se, 1e-9)) >= POWER:
            return n
    return max(first, most)

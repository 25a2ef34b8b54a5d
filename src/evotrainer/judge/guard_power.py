"""How often a guard lets a policy pass: known before anything is spent, by the judge's own interval and assumed noise.

The assumptions are those of `planned_seeds`; `python -m bench.judge.guards` compares with simulated runs through
`guards.gate` itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache

import numpy as np

from evotrainer.judge.guards import CONFIDENCE
from evotrainer.judge.planned_seeds import POWER, SAMPLING, SEED_SD, TASK_SD
from evotrainer.records.text import counted

DRAWS = 4_000
RARE = 0.25
"""Chance to pass below which a guard blocks nearly always."""
MOST_SEEDS = 20
"""Trainings a side beyond which no number is named."""
COIN = 0.25
"""Variance of one attempt at a task that is solved in half of them."""


@cache
def passes(tasks: int, attempts: int, seeds: int, margin: float, loss: float = 0.0, seed_sd: float = SEED_SD) -> float:
    """Probability that a branch whose recipe loses `loss`, score units, passes a guard of at most `margin`: both lower
    bounds, to the base policy and to the control, must exclude the margin.

    `seeds` trainings of branch and control each; with one it speaks of these policies, and nothing that trainings
    differ by is in it.
    """
    from scipy.special import stdtrit

    rng = np.random.default_rng(0)
    z_branch, z_control, z_base, z_task, z_spread = rng.standard_normal((5, DRAWS))
    cell = SAMPLING / attempts
    base = cell / tasks
    trial = base + (seed_sd**2 if seeds > 1 else 0.0)
    df = 2 * (seeds - 1) if seeds > 1 else tasks
    # as `certify` has it: a single attempt shows no spread of its own, and is taken as that of a coin; one pooled
    # variance between trainings, not below what sampling alone makes
    shown = cell if attempts > 1 else COIN
    told = np.maximum(trial * rng.chisquare(df, DRAWS) / df if seeds > 1 else 0.0, shown / tasks) * np.ones(DRAWS)
    noise = 1 + 1 / seeds, 2 / seeds
    branch = -loss + (trial / seeds) ** 0.5 * z_branch + TASK_SD / tasks**0.5 * z_task
    means = branch - base**0.5 * z_base, branch - (trial / seeds) ** 0.5 * z_control
    ok = np.ones(DRAWS, dtype=bool)
    for mean, cells, trained, alone in zip(means, noise, (1, 2), (shown / tasks, 0.0), strict=True):
        spread = TASK_SD**2 + cells * cell
        moved = spread * (1 + (2 / max(1, tasks - 1)) ** 0.5 * z_spread) - cells * shown
        parts = ((trained * told / seeds, df), (alone, tasks), (np.maximum(0.0, moved) / tasks, max(1, tasks - 1)))
        var = sum(v for v, _ in parts)
        freedom = var**2 / sum(v * v / d for v, d in parts)
        ok &= mean - stdtrit(freedom, 0.5 + CONFIDENCE / 2) * var**0.5 > -margin
    return float(ok.mean())


def tasks_needed(attempts: int, seeds: int, margin: float) -> int | None:
    """Fewest tasks, to two digits, with which what loses nothing passes with probability `POWER`; None: no number."""
    steps = [round(m * 10**e) for e in range(1, 5) for m in np.arange(1.0, 10.0, 0.5)]
    at = bisect_left(steps, POWER, key=lambda n: passes(n, attempts, seeds, margin))
    return steps[at] if at < len(steps) else None


def margin_needed(tasks: int, attempts: int, seeds: int) -> float:
    """Smallest margin, whole points, that what loses nothing clears with probability `POWER`."""
    return next(p / 100 for p in range(1, 101) if p == 100 or passes(tasks, attempts, seeds, p / 100) >= POWER)


def seeds_needed(tasks: int, attempts: int, margin: float) -> int | None:
    """Fewest trainings a side, two at least, with which what loses nothing passes with probability `POWER`."""
    return next((n for n in range(2, MOST_SEEDS + 1) if passes(tasks, attempts, n, margin) >= POWER), None)


def outlook(guards: Sequence[tuple[str, int, int, float]], seeds: int) -> list[str]:
    """What to expect of guards (name, tasks, attempts, margin) that mostly block what loses nothing, and what would
    help; a sentence each, and one of all together."""
    out, all_pass = [], 1.0
    for name, tasks, attempts, margin in guards:
        chance = passes(tasks, attempts, seeds, margin)
        all_pass *= chance
        if chance >= POWER:
            continue
        remedies = (
            (tasks_needed(attempts, seeds, margin), "{:,} tasks would"),
            (seeds_needed(tasks, attempts, margin), "{} trainings a side would"),
            (100 * margin_needed(tasks, attempts, seeds), "a margin of {:.0f} points would"),
        )
        enough = ", or ".join(words.format(n) for n, words in remedies if n is not None)
        out.append(
            f"guard {name} of {counted(tasks, 'task')}, {counted(attempts, 'attempt')} each, "
            f"{'can hardly ever clear' if chance < RARE else 'often fails to clear'} a margin of {100 * margin:g} "
            f"points: with {counted(seeds, 'training')} a side a policy that loses nothing passes in {chance:.0%} of "
            f"cases, if trainings differ by {100 * SEED_SD:g} points; {enough} ({POWER:.0%} pass)"
        )
    if len(guards) > 1 and all_pass < POWER:
        out.append(f"all {len(guards)} guards together: a policy that loses nothing passes in {all_pass:.0%} of cases")
    return out

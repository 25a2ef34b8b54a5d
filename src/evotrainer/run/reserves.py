"""What a run keeps back for its certification."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from evotrainer.errors import BudgetError
from evotrainer.projections.branches import START
from evotrainer.rules.bundles import SINCE, knockout_seeds, largest_bundle

if TYPE_CHECKING:
    from evotrainer.run.context import RunContext


def knockout_trials(ctx: RunContext, factors: int) -> int:
    """What to keep for the proof of a bundle of exactly so many factors, in trainings: each factor knocked out, on
    fresh seeds; where one is taken out, what is left judged and certified by itself."""
    rest = len(ctx.task.run.seeds) + len(ctx.task.run.certify_seeds) if ctx.state.rules >= SINCE else 0
    return factors * len(knockout_seeds(ctx.task, ctx.state, factors)) + rest if factors > 1 else 0


def dearest_proof(ctx: RunContext, most: int | None = None) -> int:
    """What to keep for the proof of a bundle of up to so many factors (the largest, where none are given). A smaller
    one may be dearer, as it has more knock-outs of each factor: 6 factors have 12, 7 have 7."""
    most = largest_bundle(ctx.task, ctx.state) if most is None else most
    return max((knockout_trials(ctx, k) for k in range(2, most + 1)), default=0)


def certification_trials(ctx: RunContext) -> int:
    """What to keep for certification, in trainings: the champion on fresh seeds, and evaluations at a quarter each."""
    shortcuts, audits = ctx.state.shortcuts, 0
    if ctx.task.judge.audit == "promotions":
        audits = len(shortcuts.to_close(ctx.env_knobs))
    seeds = max(len(ctx.branches[x].finished) for x in (START, ctx.champion) if x in ctx.branches)
    evaluations = (1 + seeds) + audits * (1 + 2 * seeds)
    champion = ctx.branches.get(ctx.champion)
    evaluations += champion is not None and champion.recipe.scaffold != ctx.task.recipe.scaffold
    return len(ctx.task.run.certify_seeds) + ceil(evaluations / 4)


def over_budget(ctx: RunContext, need: float, trials: float) -> str:
    """Why the budget does not hold `need` trainings' worth of CPU, or so many more trainings; empty where it does."""
    try:
        ctx.budget().check(cpu_s=need * ctx.trial_reserve(), trials=trials)
    except BudgetError as e:
        return f"over budget: {e}"
    return ""

"""What a run keeps back for its certification."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from evotrainer.errors import BudgetError
from evotrainer.projections.branches import START

if TYPE_CHECKING:
    from evotrainer.run.context import RunContext


def knockout_trials(ctx: RunContext) -> int:
    """What to keep for the proof of a bundle, in trainings: each factor knocked out, on fresh seeds."""
    return ctx.task.run.changes * len(ctx.task.run.certify_seeds) if ctx.task.run.changes > 1 else 0


def certification_trials(ctx: RunContext) -> int:
    """What to keep for certification, in trainings: the champion on fresh seeds, and evaluations at a quarter each."""
    shortcuts, audits = ctx.state.shortcuts, 0
    if ctx.task.judge.audit == "promotions":
        audits = len(shortcuts.to_close(ctx.env_knobs))
    seeds = max(len(ctx.branches[x].finished) for x in (START, ctx.champion) if x in ctx.branches)
    evaluations = (1 + seeds) + audits * (1 + 2 * seeds)
    return len(ctx.task.run.certify_seeds) + ceil(evaluations / 4)


def over_budget(ctx: RunContext, need: float, trials: float) -> str:
    """Why the budget does not hold `need` trainings' worth of CPU, or so many more trainings; empty where it does."""
    try:
        ctx.budget().check(cpu_s=need * ctx.trial_reserve(), trials=trials)
    except BudgetError as e:
        return f"over budget: {e}"
    return ""

"""What a run keeps back for its certification."""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING

from evotrainer.errors import BudgetError
from evotrainer.projections.branches import START
from evotrainer.records.briefing import PromotionThreshold
from evotrainer.rules.planned_seeds import seeds_for, threshold

if TYPE_CHECKING:
    from evotrainer.run.context import RunContext


def topup_trials(ctx: RunContext, gain: float) -> int:
    """What to keep for further seeds, in trainings, of a branch that gains so much and of its control alike."""
    return 2 * (seeds_for(ctx.task, ctx.state, gain) - len(ctx.task.run.seeds))


def control_trials(ctx: RunContext) -> int:
    """What to keep for a control at equal compute, in trainings: what a change costs is known when it was trained."""
    return len(ctx.task.run.seeds) if ctx.task.judge.max_cost is not None else 0


def planned(ctx: RunContext) -> tuple[PromotionThreshold, ...]:
    """What the judge will ask for with `run.seeds`, and with one seed more each: `Briefing.planned`."""
    first = len(ctx.task.run.seeds)
    found = [threshold(ctx.task, ctx.state, n) for n in range(first, seeds_for(ctx.task, ctx.state, None) + 1)]
    return tuple(x for x in found if x is not None)


def provable_gain(ctx: RunContext) -> PromotionThreshold | None:
    """What gain the rest of the budget can prove: `Briefing.provable`."""
    first = len(ctx.task.run.seeds)
    spare = trainings_left(ctx) - first - control_trials(ctx) - certification_trials(ctx)
    seeds = int(min(ctx.task.judge.max_seeds, first + spare / 2))
    return threshold(ctx.task, ctx.state, seeds) if spare >= 0 else None


def trainings_left(ctx: RunContext) -> float:
    """That the budget pays for; infinite where it has no limit."""
    left, each = ctx.budget().left(), ctx.reserve()
    return min([left.get("trials", inf), *(left[k] / max(1e-9, x) for k, x in each.items() if k in left)])


def certification_trials(ctx: RunContext, side: int = 0) -> int:
    """What to keep for certification, in trainings: the champion on fresh seeds, and evaluations at a quarter each.
    `side`: seeds that a branch and its control are to have, where that is more than any has."""
    shortcuts, audits = ctx.state.shortcuts, 0
    if ctx.task.judge.audit == "promotions":
        audits = len(shortcuts.to_close(ctx.env_knobs))
    seeds = max(side, *(len(ctx.branches[x].finished) for x in (START, ctx.champion) if x in ctx.branches))
    evaluations = (1 + seeds) + audits * (1 + 2 * seeds)
    champion = ctx.branches.get(ctx.champion)
    evaluations += champion is not None and champion.recipe.scaffold != ctx.task.recipe.scaffold
    return len(ctx.task.run.certify_seeds) + ceil(evaluations / 4)


def half_of_round(ctx: RunContext, n: int) -> float:
    """Half of the trainings that the budget held when round `n` began its search: as many are left to a proof that
    wants more seeds. Where three seeds of the start happen to lie far apart, it would want more than there are, and
    nothing would be looked for."""
    return (trainings_left(ctx) + sum(p.round == n for p in ctx.state.probes.values())) / 2


def over_budget(ctx: RunContext, need: float, trials: float) -> str:
    """Why the budget does not hold what `need` trainings cost, or so many more trainings; empty where it does."""
    try:
        ctx.budget().check(**{k: need * x for k, x in ctx.reserve().items()}, trials=trials)
    except BudgetError as e:
        return f"over budget: {e}"
    return ""

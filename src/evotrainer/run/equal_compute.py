"""Controls at equal compute: a branch that trained dearer than allowed is judged against its parent's recipe, trained
for as long."""

from __future__ import annotations

from collections.abc import Sequence

from evotrainer.errors import BudgetError
from evotrainer.projections.branches import START, Branch
from evotrainer.records import keys
from evotrainer.records.events import BranchOpened
from evotrainer.rules.equal_compute import control_of, longer, steps_to_match
from evotrainer.run import trial_specs
from evotrainer.run.context import RunContext
from evotrainer.run.reserves import certification_trials


def controls(ctx: RunContext, n: int, names: Sequence[str]) -> list[str]:
    """The controls that these branches need and that the budget pays, trained; those trained before included."""
    out = [x for name in names if (x := open_control(ctx, n, ctx.branches[name]))]
    if out:
        ctx.observer.step(f"9 verify: controls at equal compute ({', '.join(out)})")
        ctx.run_trials([trial_specs.training(ctx, ctx.branches[x], s) for s in ctx.task.run.seeds for x in out])
    return out


def open_control(ctx: RunContext, n: int, b: Branch) -> str:
    """The control of a branch at its own compute; empty where it needs none, or the budget does not hold it."""
    key = keys.opened(keys.control(b.branch))
    judged_without = ctx.recorded(key) is None and ctx.recorded(keys.judged(b.branch, 1)) is not None
    steps = None if judged_without else steps_to_match(ctx.task, ctx.state, b.branch)
    if steps is None:
        matched = control_of(ctx.state, b.branch)
        return matched if ctx.branches[matched].matches else ""
    parent = ctx.branches[b.parent or START]
    if ctx.recorded(key) is None and (why := over_budget(ctx, steps / parent.recipe.steps)):
        ctx.observer.note(f"{b.branch} trained dearer than {parent.branch}, which is not trained for as long: {why}")
        return ""
    recipe = parent.recipe.with_factor("steps", steps)
    ctx.record(
        key,
        BranchOpened,
        lambda: BranchOpened(
            branch=keys.control(b.branch),
            parent=parent.branch,
            round=n,
            recipe=recipe,
            recipe_hash=recipe.hash,
            intervention=longer(parent.recipe, steps, b.branch),
            matches=b.branch,
        ),
    )
    return keys.control(b.branch)


def over_budget(ctx: RunContext, ratio: float) -> str:
    """Why the trainings of a control are not paid; empty where they are."""
    seeds = len(ctx.task.run.seeds)
    need = seeds * ratio + certification_trials(ctx)
    try:
        ctx.budget().check(cpu_s=need * ctx.trial_reserve(), trials=seeds + len(ctx.task.run.certify_seeds))
    except BudgetError as e:
        return f"over budget: {e}"
    return ""

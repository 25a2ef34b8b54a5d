"""Controls at equal compute: a branch that would be promoted and trained dearer than allowed is judged against its
parent's recipe, trained for as long."""

from __future__ import annotations

from evotrainer.projections.branches import START, Branch
from evotrainer.records import keys
from evotrainer.records.verdicts import Verdict
from evotrainer.rules.equal_compute import control_of, longer, steps_to_match
from evotrainer.run import readings, trial_specs
from evotrainer.run.branches import open_branch
from evotrainer.run.context import RunContext
from evotrainer.run.noise import widen_noise
from evotrainer.run.reserves import certification_trials, over_budget


def needs_control(verdict: Verdict) -> bool:
    """Would it be a promotion, had the branch not trained dearer than its control?"""
    passed = {g.gate: g.passed for g in verdict.gates}
    gains = all(passed.get(g) for g in ("validity", "effect", "min_effect", "noise_floor"))
    return verdict.kind == "inconclusive" and gains and passed.get("compute") is False


def train_control(ctx: RunContext, n: int, name: str) -> None:
    """Train and read the control that was opened for a branch, as far as that is not done; nothing where none was."""
    control = ctx.branches[control_of(ctx.state, name)]
    if control.matches and len(control.finished) < len(ctx.task.run.seeds):
        ctx.observer.step(f"trains {control.branch}: {control.parent} at the training compute of {name}")
        ctx.run_trials([trial_specs.training(ctx, control, s) for s in ctx.task.run.seeds])
        readings.read_branch(ctx, n, control.branch)
        widen_noise(ctx, [control.branch])


def open_control(ctx: RunContext, n: int, b: Branch) -> bool:
    """Open the control of a branch at its own compute; False where its steps are all that differs, or where the budget
    does not hold it."""
    steps = steps_to_match(ctx.task, ctx.state, b.branch)
    if steps is None:
        return False
    parent = ctx.branches[b.parent or START]
    seeds = len(ctx.task.run.seeds)
    more = steps - parent.recipe.steps
    need = seeds * (1 + more / parent.recipe.whole_steps) + certification_trials(ctx)
    known = ctx.recorded(keys.opened(keys.control(b.branch))) is not None  # paid for already, as far as it was trained
    if not known and (why := over_budget(ctx, need, seeds + len(ctx.task.run.certify_seeds))):
        ctx.observer.note(f"{b.branch} trained dearer than {parent.branch}, which is not trained for as long: {why}")
        return False
    recipe = parent.recipe.with_factor("steps", steps)
    iv = longer(parent.recipe, steps, b.branch)
    open_branch(ctx, keys.control(b.branch), parent.branch, n, recipe, iv, matches=b.branch)
    return True

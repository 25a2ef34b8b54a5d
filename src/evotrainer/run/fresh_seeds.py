"""A promoted branch's gate effect on fresh seeds, which is the effect that is reported.

A branch is promoted because its seeds did well (and its control's perhaps badly), so its effect as selected is too
large on average. Fresh trainings of the same recipe know nothing of that.
"""

from __future__ import annotations

from evotrainer.executors.spec import EvalPlan, TrialSpec
from evotrainer.projections.branches import Branch
from evotrainer.records import keys
from evotrainer.records.events import Reestimated
from evotrainer.rules.equal_compute import control_of
from evotrainer.rules.fresh_seeds import reestimate as measure
from evotrainer.rules.fresh_seeds import sides_of
from evotrainer.run import shortcut_audits, skills, trial_specs
from evotrainer.run.context import RunContext


def certification_specs(ctx: RunContext, b: Branch, cert: EvalPlan) -> list[TrialSpec]:
    """What certification still needs of a champion: fresh trainings that read cert as well, or where those were trained
    before, evaluations of their policies.
    """
    out = []
    for s in ctx.task.run.certify_seeds:
        spec = trial_specs.training(ctx, b, s, "confirm", (cert,))
        known = ctx.recorded(keys.finished(spec.trial))
        if known is not None and all(x.split != "cert" for x in known.body.scores):
            trial = keys.certification(spec.trial)
            spec = trial_specs.evaluation(ctx, trial, b, s, known.body.policy_path, (cert,), "certify")
        out.append(spec)
    return out


def after_promotion(ctx: RunContext, name: str) -> None:
    """Right after a promotion, if the task file asks for it: train branch and control on fresh seeds."""
    b = ctx.branches[name]
    if ctx.task.judge.reestimate != "promotions" or b.parent is None:
        return
    if ctx.recorded(keys.reestimated(name)) is None:
        ctx.observer.step(f"trains {name} on fresh seeds")
    sides = (b, ctx.branches[control_of(ctx.state, name)])
    ctx.run_trials([trial_specs.training(ctx, x, s, "confirm") for s in ctx.task.run.certify_seeds for x in sides])
    reestimate(ctx, name)


def reestimate(ctx: RunContext, name: str) -> None:
    """The effect of a winner on fresh seeds, from trainings there are; nothing for a starting recipe."""
    if ctx.branches[name].parent is None:
        return

    def measured() -> Reestimated:
        for x, trials in sides_of(ctx.task, ctx.state, name).items():
            shortcut_audits.evaluations(ctx, x, trials, ctx.env_knobs)
        return measure(ctx.task, ctx.state, name)

    body = ctx.record(keys.reestimated(name), Reestimated, measured)
    points = body.effect.points
    was = f", {100 * body.selected.mean:+.1f} at selection" if body.selected else ""
    ctx.observer.note(f"{name} on fresh seeds: {points} on gate{was}")
    skills.update_skills(ctx)

"""Guards in a run: policies are evaluated on another environment before a promotion, and for the certificate."""

from __future__ import annotations

from collections.abc import Iterable

from evotrainer.executors.spec import EvalPlan, TrialSpec
from evotrainer.judge.guards import GATE
from evotrainer.projections.branches import BASE
from evotrainer.records import keys
from evotrainer.records.events import TrialFinished
from evotrainer.records.verdicts import Verdict
from evotrainer.rules.guards import component_of, protocol_on
from evotrainer.run import trial_specs
from evotrainer.run.context import RunContext


def unread(verdict: Verdict) -> bool:
    """Does a verdict wait for the guards, since it would be a promotion otherwise?"""
    return any(g.gate.startswith(GATE) and g.passed is None and "unread" in g.numbers for g in verdict.gates)


def evaluate(ctx: RunContext, trials: Iterable[TrialFinished]) -> None:
    """Evaluate these policies, and the base policy, on every guard. TrainerError where one cannot be: the run stops
    there, and a resume tries it again."""
    base = [ctx.state.base] if ctx.state.base else []
    specs = [_spec(ctx, t, i) for i in range(len(ctx.task.guard)) for t in (*base, *trials)]
    if any(ctx.recorded(keys.finished(s.trial)) is None for s in specs):
        ctx.observer.step(f"evaluates on guards: {', '.join(g.name for g in ctx.task.guard)}")
    ctx.run_trials(specs)


def _spec(ctx: RunContext, t: TrialFinished, i: int) -> TrialSpec:
    g = ctx.task.guard[i]
    b = None if t.branch == BASE else ctx.branches[t.branch]
    own = protocol_on(ctx.task, b.recipe if b else ctx.task.recipe, g, component_of(ctx.state, g))
    return trial_specs.spec_of(
        ctx,
        keys.guard(t.trial, g.name),
        b,
        t.seed,
        "guard",
        recipe=own,
        protocol=own,
        environment=g.environment,
        policy_dir=t.policy_path if b else trial_specs.base_dir(ctx),
        evals=(EvalPlan(split="guard", of=g.split, attempts=g.attempts, tasks=g.tasks),),
        policy_step=b.recipe.whole_steps if b else 0,
    )

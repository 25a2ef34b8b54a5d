"""Steps 1 to 4: a branch's stored search rollouts, read by the current harness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evotrainer.projections.branches import BASE
from evotrainer.records import keys
from evotrainer.records.events import Diagnosed
from evotrainer.records.findings import HealthReport
from evotrainer.rules.reading_context import harness_context

if TYPE_CHECKING:
    from evotrainer.harness import Batch
    from evotrainer.run.context import RunContext


def read(ctx: RunContext, key: str, n: int, branch: str) -> HealthReport:
    """The recorded reading of a branch, or of the base policy, under this key; made first where there is none."""

    def diagnosed() -> Diagnosed:
        steps = ctx.task.recipe.steps if branch != BASE else 0
        context = harness_context(ctx.task, ctx.state, branch, sandboxed=ctx.detector_runner)
        return Diagnosed(round=n, health=ctx.harness.read(batch(ctx, branch), f"{branch}@{steps} search", context))

    return ctx.record(key, Diagnosed, diagnosed).health


def read_branch(ctx: RunContext, n: int, branch: str, harness: str = "") -> HealthReport:
    """The reading before a branch's next interim analysis; harness: the version that it is read again with."""
    return read(ctx, keys.reading(branch, ctx.branches[branch].looks + 1, harness), n, branch)


def batch(ctx: RunContext, branch: str) -> Batch:
    """Search rollouts of a branch's complete trainings, of a probe's, or of the base policy."""
    if branch == BASE:
        return ctx.rollouts.batch(keys.BASE_TRIAL)
    return ctx.rollouts.batch(*(t.trial for t in (ctx.branches.get(branch) or ctx.state.probes[branch]).complete))

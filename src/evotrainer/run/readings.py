"""Steps 1 to 4: a branch's stored search rollouts, read by the current harness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evotrainer.projections.branches import BASE
from evotrainer.records import keys
from evotrainer.records.events import Diagnosed, TrialFinished
from evotrainer.records.findings import HealthReport
from evotrainer.rules.reading_context import harness_context

if TYPE_CHECKING:
    from evotrainer.harness import Batch
    from evotrainer.run.context import RunContext


def read(ctx: RunContext, key: str, n: int, branch: str) -> HealthReport:
    """The recorded reading of a branch, or of the base policy, under this key; made first where there is none."""

    def diagnosed() -> Diagnosed:
        subject = f"{branch}@{ctx.task.recipe.steps if branch != BASE else 0} search"
        found = batch(ctx, branch)
        if not found.n and branch != BASE and (report := _executor_reading(ctx, branch)):
            return Diagnosed(round=n, health=report.model_copy(update={"subject": subject}))
        context = harness_context(ctx.task, ctx.state, branch, sandboxed=ctx.detector_runner)
        return Diagnosed(round=n, health=ctx.harness.read(found, subject, context))

    return ctx.record(key, Diagnosed, diagnosed).health


def read_branch(ctx: RunContext, n: int, branch: str, harness: str = "") -> HealthReport:
    """The reading before a branch's next interim analysis; harness: the version that it is read again with."""
    return read(ctx, keys.reading(branch, ctx.branches[branch].looks + 1, harness), n, branch)


def batch(ctx: RunContext, branch: str) -> Batch:
    """Search rollouts of a branch's complete trainings, of a probe's, or of the base policy."""
    if branch == BASE:
        return ctx.rollouts.batch(keys.BASE_TRIAL)
    return ctx.rollouts.batch(*(t.trial for t in _complete(ctx, branch)))


def _executor_reading(ctx: RunContext, branch: str) -> HealthReport | None:
    """What the executor itself read of a search evaluation, where it stored no rollouts: of its first seed."""
    return next((h for t in _complete(ctx, branch) for h in t.health if h.subject.endswith(" search")), None)


def _complete(ctx: RunContext, branch: str) -> Sequence[TrialFinished]:
    return (ctx.branches.get(branch) or ctx.state.probes[branch]).complete

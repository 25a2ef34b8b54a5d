"""Steps 1 to 4: a branch's stored search rollouts, read by the harness in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evotrainer.projections.branches import BASE
from evotrainer.projections.means import mean_curve, mean_per_task
from evotrainer.records import keys
from evotrainer.records.events import Diagnosed
from evotrainer.records.evidence import HealthReport

if TYPE_CHECKING:
    from evotrainer.config.task import TaskFile
    from evotrainer.harness import Batch, HarnessContext
    from evotrainer.projections.state import RunState
    from evotrainer.run.context import RunContext


def read(ctx: RunContext, key: str, n: int, branch: str) -> HealthReport:
    """The recorded reading of a branch, or of the base policy, under this key; made first where there is none."""

    def diagnosed() -> Diagnosed:
        steps = ctx.task.recipe.steps if branch != BASE else 0
        context = harness_context(ctx.task, ctx.state, branch, sandboxed=ctx.detector_runner)
        return Diagnosed(round=n, health=ctx.harness.read(batch(ctx, branch), f"{branch}@{steps} search", context))

    return ctx.record(key, Diagnosed, diagnosed).health


def read_branch(ctx: RunContext, n: int, branch: str, harness: str = "") -> HealthReport:
    """The reading before a branch's next look; harness: the version that it is read again with."""
    return read(ctx, keys.reading(branch, ctx.branches[branch].looks + 1, harness), n, branch)


def batch(ctx: RunContext, branch: str) -> Batch:
    """Search rollouts of a branch's complete trainings, or of the base policy."""
    return ctx.rollouts.batch(keys.BASE_TRIAL) if branch == BASE else ctx.rollouts.batch_of(ctx.branches[branch])


def harness_context(task: TaskFile, state: RunState, branch: str, sandboxed: Any = None) -> HarnessContext:
    """What a branch's rollouts are read beside: its recipe, earlier readings, scores and curves, as far as they are known.

    `branch`: `base` for the base policy. `verify` calls it with the state of then.
    """
    from evotrainer.harness import HarnessContext

    b = state.branches.get(branch)
    base = state.readings.get(BASE)
    parent = state.branches.get(b.parent) if b and b.parent else None
    earlier = (base if b else None, parent.health if parent else None)
    came = [] if b is None else parent.complete if parent else [state.base] if state.base else []
    solved = [s.per_task for t in came for s in t.scores if s.split == "search"]
    return HarnessContext(
        recipe=b.recipe if b else task.recipe,
        proxy=state.proxy,
        max_tokens=task.recipe.max_tokens,
        previous=tuple(h for h in earlier if h is not None),
        base=base,
        before=mean_per_task(solved) if solved else None,
        curve=tuple(mean_curve([t.curve for t in b.complete])) if b else (),
        sandboxed=sandboxed,
    )

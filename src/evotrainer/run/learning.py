"""A run learns from its reader: what a reading confirmed becomes a detector of the next version of the harness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evotrainer.records import keys
from evotrainer.rules import learned
from evotrainer.run import gaps, readings
from evotrainer.run.harness_versions import closable

if TYPE_CHECKING:
    from evotrainer.projections.branches import Branch
    from evotrainer.records.events import GapSeen, ReaderConcluded
    from evotrainer.run.context import RunContext


def learn(ctx: RunContext, n: int, read: ReaderConcluded) -> None:
    """Where a reading is confirmed: mine it once, with all readings before it; the branch is read again with a version
    that followed."""
    if read.outcome != "confirmed" or not ctx.task.run.evolve_harness:
        return

    def look(ctx: RunContext, n: int, b: Branch) -> GapSeen | None:
        ctx.observer.step(f"learns from what was read of {b.branch}")
        standing = "suspect" if closable(ctx, b) else "informational"
        runner = ctx.detector_runner
        return learned.learn(ctx.ledger.events(), ctx.rollouts, read, standing, runner, runner.spent)

    b = ctx.branches[read.branch]
    key, at = (f(read.branch, read.reading) for f in (keys.learned, keys.at_learned))
    gaps.answer(ctx, n, b, key, at, look, late=True)
    made, versions = ctx.recorded(keys.harness(at)), [e.body.version for e in ctx.ledger.events("harness")]
    if made and b.health and versions.index(b.health.harness) < versions.index(made.body.version):
        readings.read_branch(ctx, n, read.branch, made.body.version)

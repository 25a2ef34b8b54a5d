"""A run learns from what was confirmed: hacks that a reader or a probe found become a detector of the next version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evotrainer.records import keys
from evotrainer.rules import learned
from evotrainer.run import gaps, readings
from evotrainer.run.harness_versions import closable

if TYPE_CHECKING:
    from evotrainer.projections.branches import Branch
    from evotrainer.records.events import GapSeen, ReaderConcluded
    from evotrainer.run.context import RunContext


def review(ctx: RunContext, n: int, names: Sequence[str]) -> None:
    """Look for gaps in branches that were just read, and learn from the facts that probes found in them."""
    gaps.review(ctx, n, names)
    for b in (ctx.branches[name] for name in names):
        if any(learned.probed(ctx.rollouts, t.trial)[learned.HACK] for t in b.complete):
            _learn(ctx, n, b.branch, 0)


def from_reading(ctx: RunContext, n: int, read: ReaderConcluded) -> None:
    """Learn from a reading that is confirmed."""
    if read.outcome == "confirmed":
        _learn(ctx, n, read.branch, read.reading)


def _learn(ctx: RunContext, n: int, branch: str, reading: int) -> None:
    """Mine once what was confirmed so far; the branch is read again with a version that followed."""
    if not ctx.task.run.evolve_harness:
        return

    def look(ctx: RunContext, n: int, b: Branch) -> GapSeen | None:
        ctx.observer.step(f"learns from confirmed rollouts of {branch}")
        standing: learned.Standing = "suspect" if closable(ctx, b) else "informational"
        return learned.learn(
            ctx.ledger.events(), ctx.rollouts, b, learned.trainings(ctx.branches), standing, ctx.detector_runner
        )

    at = keys.at_learned(branch, reading)
    gaps.record_gap(ctx, n, ctx.branches[branch], keys.learned(branch, reading), at, look, late=True)
    made, versions = ctx.recorded(keys.harness(at)), [e.body.version for e in ctx.ledger.events("harness")]
    health = ctx.branches[branch].health
    if made and health and versions.index(health.harness) < versions.index(made.body.version):
        readings.read_branch(ctx, n, branch, made.body.version)

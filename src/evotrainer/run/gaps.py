"""Gaps in a run: something moved, and no finding says why. Detectors are mined for it and admitted: a new version.

Or nothing moved, and what is paid is wrong (`unexplained_gaps.py`). What a gap is, how contrasts are mined and what
admission asks for is in `harness/evolving/`; which rollouts are mined and which are held out, in `contrasts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evotrainer.projections.branches import Branch
from evotrainer.records import keys
from evotrainer.records.events import GapSeen
from evotrainer.run import admissions, readings, unexplained_gaps
from evotrainer.run.context import RunContext
from evotrainer.run.contrasts import (
    compared_with,
    hold_out_training,
    minable_pairs,
    split_sides,
    watched_pairs,
)
from evotrainer.run.harness_versions import closable, evolve, quotes


def review(ctx: RunContext, n: int, names: Sequence[str]) -> None:
    """Look for gaps in branches that were just read; where the harness evolved, they are read again with it."""
    if not ctx.task.run.evolve_harness:
        return
    branches = [b for name in names if (b := ctx.branches[name]).complete and b.health]
    for b in branches:
        search_branch(ctx, n, b)
    version = ctx.harness.version
    for b in branches:
        if b.health and b.health.harness != version:
            readings.read_branch(ctx, n, b.branch, version)


def search_branch(ctx: RunContext, n: int, b: Branch) -> None:
    """One branch: its gaps, if it has any, what was mined for them, and the versions that followed."""
    record_gap(ctx, n, b, keys.gap(b.branch), keys.at_gap(b.branch), examine)
    record_gap(ctx, n, b, keys.unexplained_gap(b.branch), keys.at_unexplained_gap(b.branch), unexplained_gaps.examine)


def record_gap(
    ctx: RunContext,
    n: int,
    b: Branch,
    key: str,
    at: str,
    look: Callable[[RunContext, int, Branch], GapSeen | None],
    late: bool = False,
) -> None:
    """The gap that `look` sees, recorded under `key`, and the version that answers it. Of a branch that is over nothing
    is sought, but `late`."""
    seen = None
    if ctx.recorded(key) is None:
        seen = None if already_judged(ctx, b) and not late else look(ctx, n, b)
        if seen is None:
            return
    gap = ctx.record(key, GapSeen, lambda: seen)  # type: ignore[arg-type, return-value]
    admitted = [a.detector for a in gap.considered if a.admitted]
    if not admitted:
        ctx.observer.note(f"gap in {b.branch}: {gap.claim}; {gap.reason or 'no candidate was admitted'}")
        return
    reason = f"{b.branch}: {gap.claim}; mined: {', '.join(s.name for s in admitted)}"
    evolve(
        ctx,
        at,
        n,
        gap.trigger,
        reason,
        add=admitted,
        gap=key,
        branches=(b.branch,),
        quoted=lambda: quotes(ctx, admitted, b),
        admissions=gap.considered,
    )


def already_judged(ctx: RunContext, b: Branch) -> bool:
    """Was the branch judged, or given its version, before gaps were looked for? Such a branch is left alone."""
    promoted = any(e.body.branch == b.branch for e in ctx.ledger.events("promoted"))
    return promoted or ctx.recorded(keys.judged(b.branch, 1)) is not None


def examine(ctx: RunContext, n: int, b: Branch) -> GapSeen | None:
    """The gap of a branch against what it came from, with the candidates that contrast mining finds for it."""
    from evotrainer.harness.columns.features import FeatureView
    from evotrainer.harness.evolving.gaps import find_gap
    from evotrainer.harness.evolving.mining import mine

    against, before = compared_with(ctx, b)
    now = {t.trial: ctx.rollouts.views(t.trial) for t in b.complete}
    if not before or not all(map(len, now.values())):
        return None
    was = FeatureView.joined(ctx.rollouts.views(t.trial) for t in before)
    gap = find_gap(now, was, b.findings, watched_pairs(ctx, b))
    if gap is None:
        return None
    ctx.observer.step(f"looks for detectors of a gap in {b.branch}")
    sides = split_sides(ctx, b, gap, before, now)
    mined = mine(
        FeatureView.joined(sides.bad.values()), FeatureView.joined(sides.clean.values()), minable_pairs(ctx, b, gap)
    )
    if mined.candidates:
        hold_out_training(ctx, b, gap, before, sides)
    standing = "suspect" if gap.up and closable(ctx, b) else "informational"
    return admissions.tried(
        ctx,
        n,
        b,
        against,
        gap,
        mined,
        sides,
        lambda _, spec: spec.model_copy(update={"standing": standing}),
        f"none of {mined.compared} predicates separates the two sides",
        by_itself=False,
    )

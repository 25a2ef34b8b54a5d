"""Candidates that mining found for a gap, put to the test of admission; with what that gave, the gap is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from evotrainer.projections.branches import Branch
from evotrainer.records.detectors import Admission, DetectorSpec
from evotrainer.records.events import GapSeen
from evotrainer.rules.learned import names_used
from evotrainer.run.context import RunContext
from evotrainer.run.contrasts import ContrastSides

if TYPE_CHECKING:
    from evotrainer.harness.evolving.gaps import Gap
    from evotrainer.harness.evolving.mining import CandidatePredicate, MinedPredicates

MOST_ADMITTED = 3
"""Detectors admitted for one gap."""


def tried(
    ctx: RunContext,
    n: int,
    b: Branch,
    against: str,
    gap: Gap,
    mined: MinedPredicates,
    sides: ContrastSides,
    finished: Callable[[CandidatePredicate, DetectorSpec], DetectorSpec],
    nothing: str,
    *,
    by_itself: bool,
) -> GapSeen:
    """The gap of a branch `against` another. `finished`: the detector that is tested, from the one that mining named;
    `nothing`: why there is none, where mining found none. `by_itself`: each is tested as if none before it
    had been admitted."""
    from evotrainer.harness.evolving.mining import named

    considered: list[Admission] = []
    taken = names_used(ctx.ledger.events())
    for c in mined.candidates:
        spec = finished(c, named(c, taken).spec)
        taken.add(spec.name)
        before = [] if by_itself else [x.detector for x in considered if x.admitted]
        a = admission(ctx, spec, sides, len(mined.candidates), before)
        numbers = {"mined_bad": round(c.share_bad, 6), "mined_clean": round(c.share_clean, 6), "mined_p": c.p}
        considered.append(a.model_copy(update={"numbers": numbers | a.numbers}))
    return GapSeen(
        round=n,
        branch=b.branch,
        against=against,
        trigger=gap.trigger,
        harness=ctx.harness.version,
        claim=gap.claim,
        numbers={k: round(v, 6) for k, v in gap.numbers.items()},
        mined=(*sides.bad, *sides.clean),
        candidates=mined.compared,
        considered=tuple(considered),
        reason="" if considered else nothing,
    )


def admission(
    ctx: RunContext, spec: DetectorSpec, sides: ContrastSides, together: int, admitted: Sequence[DetectorSpec] = ()
) -> Admission:
    """A detector's test on the held-out sides, next to the current ones and those admitted just now."""
    from evotrainer.harness.evolving.admission import admit

    if len(admitted) >= MOST_ADMITTED:
        why = f"{MOST_ADMITTED} better detectors were admitted for this gap already"
        return Admission(detector=spec, admitted=False, reason=why)
    return admit(
        spec,
        sides.held_bad,
        sides.held_clean,
        together=max(1, together),
        builtin=ctx.harness.detectors,
        authored=[*ctx.harness.authored, *admitted],
        runner=ctx.detector_runner,
        spent=ctx.detector_runner.spent,
    )

"""What an agent wants changed in the harness: detectors it wrote, detectors it wants retired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from evotrainer.records import keys
from evotrainer.records.briefing import Proposal
from evotrainer.records.detectors import Admission, HarnessEdit
from evotrainer.records.events import GapSeen
from evotrainer.rules.learned import names_used
from evotrainer.run.admissions import admission
from evotrainer.run.context import RunContext
from evotrainer.run.contrasts import labelled
from evotrainer.run.harness_versions import evolve

PROTECTED = ("answer_leak", "test_tampering", "grader_bypass")
"""Built-in detectors of validity: no agent retires them."""


def edit(ctx: RunContext, n: int, k: int, proposal: Proposal) -> None:
    """Detectors that an agent wrote or wants retired: the same admission, on trials the agent was not shown."""
    if not ctx.task.run.evolve_harness:
        return
    for i, wanted in enumerate(proposal.harness_edits):
        at = keys.edit(n, i, k)
        seen = ctx.record(keys.gap(at), GapSeen, partial(tried, ctx, n, wanted))
        add = [a.detector for a in seen.considered if a.admitted]
        drop = [x for x in wanted.retire if x not in seen.kept]
        for a in seen.considered:
            ctx.observer.note(f"detector {a.detector.name}: {'admitted' if a.admitted else 'refused'}: {a.reason}")
        if add or drop:
            evolve(ctx, at, n, "agent", seen.claim, add=add, drop=drop, gap=keys.gap(at), admissions=seen.considered)


def tried(ctx: RunContext, n: int, edit: HarnessEdit) -> GapSeen:
    """What becomes of an edit: each detector admitted or refused, and what may not be retired."""
    sides, left_out = labelled(ctx)
    considered: list[Admission] = []
    for s in edit.add:
        spec = s.model_copy(update={"standing": "suspect", "origin": "agent"})
        if spec.name in names_used(ctx.ledger.events()) or spec.name in {a.detector.name for a in considered}:
            why = f"the name {spec.name} was used in this run already; choose another"
            considered.append(Admission(detector=spec, admitted=False, reason=why))
            continue
        so_far = [a.detector for a in considered if a.admitted]
        considered.append(unshown(admission(ctx, spec, sides, len(edit.add), so_far), left_out))
    why_kept = {name: unretirable(ctx, name) for name in edit.retire}
    kept = {name: why for name, why in why_kept.items() if why}
    return GapSeen(
        round=n,
        branch=ctx.incumbent,
        against="",
        trigger="agent",
        harness=ctx.harness.version,
        claim=edit.reason or "no reason given",
        considered=tuple(considered),
        reason="; ".join(f"{name} is not retired: {why}" for name, why in kept.items()),
        kept=kept,
    )


def unshown(a: Admission, left_out: Mapping[str, Sequence[str]]) -> Admission:
    """The admission; where a side has no held-out trial because the agent was shown them, its reason says so."""
    side = a.reason.removeprefix("no held-out ").partition(" ")[0]
    if not (gone := left_out.get(side)):
        return a
    return a.model_copy(update={"reason": f"{a.reason}; the agent was shown {', '.join(gone)}"})


def unretirable(ctx: RunContext, name: str) -> str:
    """Why an agent may not retire a detector; empty where it may."""
    h = ctx.harness
    spec = h.detector(name)
    if spec is None and name not in h.detectors:
        return f"no detector of that name is in {h.version}"
    if name in PROTECTED or (spec and spec.standing != "informational"):
        return "it questions validity; only its own record retires it"
    return ""

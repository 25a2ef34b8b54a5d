"""Harness evolution in a run: gaps are seen, detectors mined and admitted, audits settle them, versions recorded.

What a gap is, how contrasts are mined and what admission asks for is in `harness/evolving/`; which rollouts are mined
and which are held out, in `contrasts.py`. A version is never taken back: the next one drops what did not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evotrainer.projections.branches import BASE, Branch
from evotrainer.records import keys
from evotrainer.records.briefing import Proposal
from evotrainer.records.detectors import Admission, DetectorSpec, Flip
from evotrainer.records.events import GapSeen, HarnessEvolved
from evotrainer.records.findings import Finding, HealthReport, Quote
from evotrainer.run import readings
from evotrainer.run.context import RunContext
from evotrainer.run.contrasts import (
    Sides,
    came_from,
    hold_out_training,
    labelled,
    minable_pairs,
    split_sides,
    watched_pairs,
)

if TYPE_CHECKING:
    from evotrainer.harness import Batch

MOST_ADMITTED = 3
"""Detectors admitted for one gap."""
SILENT_ROUNDS = 3
"""Rounds in a row in which a detector fired never, or always, before it is retired."""
PROTECTED = ("answer_leak", "test_tampering", "grader_bypass")
"""Built-in detectors of validity: no agent retires them."""


# -- versions ----------------------------------------------------------------------------------------------------------


def open_versions(ctx: RunContext) -> None:
    """h0 as the task file asks for it."""

    def opened() -> HarnessEvolved:
        h = ctx.harness
        reason = "score layer only, as the task file asks" if not h.detectors else "all built-in detectors"
        return HarnessEvolved(
            version=h.version, hash=h.hash, harness=h.model_dump(mode="json"), trigger="opened", reason=reason
        )

    ctx.record(keys.harness("opened"), HarnessEvolved, opened)


def evolve(
    ctx: RunContext,
    at: str,
    n: int,
    trigger: str,
    reason: str,
    *,
    add: Sequence[DetectorSpec] = (),
    drop: Sequence[str] = (),
    standing: Mapping[str, str] | None = None,
    quoted: Callable[[], tuple[Quote, ...]] = tuple,
    **more: Any,
) -> None:
    """The next version, recorded once under `harness/<at>`, and in force from here on."""

    def made() -> HarnessEvolved:
        old = ctx.harness
        named = {s.name: s for s in old.authored}
        moved = [named[k].model_copy(update={"standing": v}) for k, v in (standing or {}).items()]
        version = f"h{1 + sum(e.body.trigger != 'opened' for e in ctx.ledger.events('harness'))}"
        new = old.evolve(version, drop=drop, authored=[*add, *moved])
        return HarnessEvolved(
            version=version,
            parent=old.version,
            hash=new.hash,
            round=n,
            harness=new.model_dump(mode="json"),
            trigger=trigger,
            reason=reason,
            added=tuple(add),
            dropped=tuple(drop),
            changed=dict(standing or {}),
            flips=tuple(flips(ctx, add)),
            quotes=quoted(),
            **more,
        )

    body = ctx.record(keys.harness(at), HarnessEvolved, made)
    ctx.observer.note(f"harness {body.version} ({body.trigger}): {body.reason}")


def names_used(ctx: RunContext) -> set[str]:
    """Names of every authored detector there ever was."""
    used = {s.name for e in ctx.ledger.events("harness") for s in e.body.added}
    return used | {a.detector.name for e in ctx.ledger.events("gap") for a in e.body.considered}


# -- gaps --------------------------------------------------------------------------------------------------------------


def review(ctx: RunContext, n: int, names: Sequence[str]) -> None:
    """Look for gaps in branches that were just read; where the harness evolved, they are read again with it."""
    if not ctx.task.run.evolve_harness:
        return
    branches = [b for name in names if (b := ctx.branches[name]).complete and b.health]
    for b in branches:
        look(ctx, n, b)
    version = ctx.harness.version
    for b in branches:
        if b.health and b.health.harness != version:
            readings.read_branch(ctx, n, b.name, version)


def look(ctx: RunContext, n: int, b: Branch) -> None:
    """One branch: its gap, if it has one, what was mined for it, and the version that followed."""
    key = keys.gap(b.name)
    seen = None
    if ctx.recorded(key) is None:
        seen = None if over(ctx, b) else examine(ctx, n, b)
        if seen is None:
            return
    gap = ctx.record(key, GapSeen, lambda: seen)  # type: ignore[arg-type, return-value]
    admitted = [a.detector for a in gap.considered if a.admitted]
    if not admitted:
        ctx.observer.note(f"gap in {b.name}: {gap.claim}; {gap.reason or 'no candidate was admitted'}")
        return
    reason = f"{b.name}: {gap.claim}; mined: {', '.join(s.name for s in admitted)}"
    evolve(
        ctx,
        f"{b.name}/gap",
        n,
        gap.trigger,
        reason,
        add=admitted,
        gap=key,
        branches=(b.name,),
        quoted=lambda: quotes(ctx, admitted, b),
        admissions=gap.considered,
    )


def over(ctx: RunContext, b: Branch) -> bool:
    """Was the branch judged, or given its version, before gaps were looked for? History is not looked at anew."""
    promoted = any(e.body.branch == b.name for e in ctx.ledger.events("promoted"))
    return promoted or ctx.recorded(keys.judged(b.name, 1)) is not None


def examine(ctx: RunContext, n: int, b: Branch) -> GapSeen | None:
    """The gap of a branch against what it came from, with the candidates that contrast mining finds for it."""
    from evotrainer.harness.columns.features import Views
    from evotrainer.harness.evolving.gaps import find_gap
    from evotrainer.harness.evolving.mining import mine, named

    against, before = came_from(ctx, b)
    now = {t.trial: ctx.rollouts.views(t.trial) for t in b.complete}
    if not before or not all(map(len, now.values())):
        return None
    was = Views.joined(ctx.rollouts.views(t.trial) for t in before)
    gap = find_gap(now, was, b.findings, watched_pairs(ctx, b))
    if gap is None:
        return None
    ctx.observer.step(f"harness: {gap.trigger.replace('_', ' ')} of {b.name}")
    sides = split_sides(ctx, b, gap, before, now)
    mined = mine(Views.joined(sides.bad.values()), Views.joined(sides.clean.values()), minable_pairs(ctx, b, gap))
    if mined.candidates:
        hold_out_training(ctx, b, gap, before, sides)
    standing = "suspect" if gap.up and closable(ctx, b) else "informational"
    considered: list[Admission] = []
    taken = names_used(ctx)
    for c in mined.candidates:
        spec = named(c, taken).spec.model_copy(update={"standing": standing})
        taken.add(spec.name)
        a = admission(ctx, spec, sides, len(mined.candidates), [x.detector for x in considered if x.admitted])
        numbers = {"mined_bad": round(c.share_bad, 6), "mined_clean": round(c.share_clean, 6), "mined_p": c.p}
        considered.append(a.model_copy(update={"numbers": numbers | a.numbers}))
    reason = "" if considered else f"none of {mined.compared} predicates separates the two sides"
    return GapSeen(
        round=n,
        branch=b.name,
        against=against,
        trigger=gap.trigger,
        harness=ctx.harness.version,
        claim=gap.claim,
        numbers={k: round(v, 6) for k, v in gap.numbers.items()},
        mined=(*sides.bad, *sides.clean),
        candidates=mined.compared,
        considered=tuple(considered),
        reason=reason,
    )


def admission(
    ctx: RunContext, spec: DetectorSpec, sides: Sides, together: int, admitted: Sequence[DetectorSpec] = ()
) -> Admission:
    """A detector's trial on the held-out sides, beside those in force and those admitted just now."""
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
        steps=sides.steps,
        damage=sides.damage,
    )


def closable(ctx: RunContext, b: Branch) -> bool:
    """Is a shortcut open in the branch's evaluations that an audit may close? Where none is,
    nothing can clear a suspect, so nothing is one."""
    knobs = b.complete[0].world if b.complete else ctx.env_knobs
    shortcuts = ctx.state.shortcuts
    return ctx.task.judge.audit != "never" and any(shortcuts.is_open(c, knobs) for c in shortcuts.closable)


# -- what an agent wants -----------------------------------------------------------------------------------------------


def edit(ctx: RunContext, n: int, k: int, proposal: Proposal) -> None:
    """Detectors that an agent wrote or wants retired: the same admission, on trials the agent was not shown."""
    if not ctx.task.run.evolve_harness:
        return
    for i, wanted in enumerate(proposal.harness_edits):
        at = keys.edit(n, i, k)

        def tried(edit: Any = wanted) -> GapSeen:
            sides, left_out = labelled(ctx)
            considered: list[Admission] = []
            for s in edit.add:
                spec = s.model_copy(update={"standing": "suspect", "origin": "agent"})
                if spec.name in names_used(ctx) or spec.name in {a.detector.name for a in considered}:
                    why = f"the name {spec.name} was used in this run already; choose another"
                    considered.append(Admission(detector=spec, admitted=False, reason=why))
                    continue
                so_far = [a.detector for a in considered if a.admitted]
                a = admission(ctx, spec, sides, len(edit.add), so_far)
                if gone := left_out.get(a.reason.removeprefix("no held-out ").partition(" ")[0]):
                    why = f"{a.reason}; the agent was shown {', '.join(gone)}"
                    a = a.model_copy(update={"reason": why})
                considered.append(a)
            kept = {name: why for name in edit.retire if (why := unretirable(ctx, name))}
            return GapSeen(
                round=n,
                branch=ctx.champion,
                against="",
                trigger="agent",
                harness=ctx.harness.version,
                claim=edit.reason or "no reason given",
                considered=tuple(considered),
                reason="; ".join(f"{name} is not retired: {why}" for name, why in kept.items()),
                kept=kept,
            )

        seen = ctx.record(keys.gap(at), GapSeen, tried)
        add = [a.detector for a in seen.considered if a.admitted]
        # ledgers of older versions name those that stay in the reason only
        said = "" if seen.kept else seen.reason
        drop = [x for x in wanted.retire if x not in seen.kept and f"{x} is not retired" not in said]
        for a in seen.considered:
            ctx.observer.note(f"detector {a.detector.name}: {'admitted' if a.admitted else 'refused'}: {a.reason}")
        if add or drop:
            evolve(ctx, at, n, "agent", seen.claim, add=add, drop=drop, gap=keys.gap(at), admissions=seen.considered)


def unretirable(ctx: RunContext, name: str) -> str:
    """Why an agent may not retire a detector; empty where it may."""
    h = ctx.harness
    spec = h.detector(name)
    if spec is None and name not in h.detectors:
        return f"no detector of that name is in {h.version}"
    if name in PROTECTED or (spec and spec.standing != "informational"):
        return "it questions validity; only its own record retires it"
    return ""


# -- what came of the detectors ----------------------------------------------------------------------------------------


def settle(ctx: RunContext, n: int, at: str = "") -> None:
    """After verdicts and audits: what an audit confirmed is marked, what it cleared only informs, what pays nothing is
    retired."""
    key = at or f"r{n}"
    if not ctx.task.run.evolve_harness or settled_before(ctx, n, key):
        return
    changed, why = answered(ctx)
    for name, reason in silent(ctx, n).items():
        if name not in changed:
            why[name] = reason
    if not why:
        return
    drop = [name for name in why if name not in changed]
    trigger = "audit" if changed else "retirement"
    reason = "; ".join(f"{name} {text}" for name, text in why.items())
    branches = tuple(sorted({a.branch for e in ctx.ledger.events("audited") if (a := e.body.audit).trigger in changed}))
    evolve(ctx, f"{key}/settled", n, trigger, reason, drop=drop, standing=changed, branches=branches)


def settled_before(ctx: RunContext, n: int, key: str) -> bool:
    """True where the run went on after this point without a new version: nothing is decided afterwards."""
    later = ctx.recorded(keys.CERTIFIED) or (None if key == "end" else ctx.recorded(keys.round_opened(n + 1)))
    return later is not None and ctx.recorded(keys.harness(f"{key}/settled")) is None


def answered(ctx: RunContext) -> tuple[dict[str, str], dict[str, str]]:
    """(detector -> new standing, detector -> why) of suspects whose branches were audited."""
    changed: dict[str, str] = {}
    why: dict[str, str] = {}
    for spec in ctx.harness.authored:
        if spec.standing == "informational":
            continue
        on = [
            b
            for b in ctx.branches.values()
            if any(f.detector == spec.name and f.validity and not f.missing for f in b.findings)
        ]
        audits = {b.name: ctx.state.audits_of(b.name) for b in on}
        proven = [a for x in audits.values() for a in x if a.confirmed]
        cleared = [name for name, x in audits.items() if x and not any(a.confirmed for a in x)]
        if spec.standing == "suspect" and proven:
            a = next((a for a in proven if a.trigger == spec.name), proven[0])
            asked = a.trigger == spec.name
            changed[spec.name] = "confirmed" if asked else "informational"
            why[spec.name] = (
                f"is confirmed: the audit of {a.branch} ({a.capability}) "
                f"that it asked for found {100 * a.excess:+.1f} points"
                if asked
                else f"came with the shortcut that {a.trigger} found in {a.branch}, and only informs"
            )
        elif spec.standing == "suspect" and cleared:
            a = audits[cleared[0]][0]
            changed[spec.name] = "informational"
            why[spec.name] = (
                f"is cleared: the audit of {a.branch} ({a.capability}) found no shortcut ({100 * a.excess:+.1f} points)"
            )
    return changed, why


def silent(ctx: RunContext, n: int) -> dict[str, str]:
    """Detectors that fired in none, or in all, of the last SILENT_ROUNDS rounds' readings;
    confirmed ones stay on guard."""
    born: dict[str, int] = {}
    for e in ctx.ledger.events("harness"):
        born.update({s.name: e.body.round for s in e.body.added})
    read = [e for e in ctx.ledger.events("diagnosed") if keys.branch_read(e.id) not in ("", BASE)]
    out: dict[str, str] = {}
    for spec in ctx.harness.authored:
        since = max(born.get(spec.name, 0), n - SILENT_ROUNDS)
        later = [
            e.body for e in read if since < e.body.round <= n and e.body.health.harness in versions_with(ctx, spec.name)
        ]
        if spec.standing == "confirmed" or len({d.round for d in later}) < SILENT_ROUNDS:
            continue
        fired = [any(f.detector == spec.name and not f.missing for f in d.health.findings) for d in later]
        if not any(fired):
            out[spec.name] = f"is retired: it fired on none of {len(fired)} branches in {SILENT_ROUNDS} rounds"
        elif all(fired):
            out[spec.name] = f"is retired: it fired on all of {len(fired)} branches in {SILENT_ROUNDS} rounds"
    return out


def versions_with(ctx: RunContext, name: str) -> set[str]:
    """Harness versions in which an authored detector is in force."""
    return {
        e.body.version
        for e in ctx.ledger.events("harness")
        if any(s["name"] == name for s in e.body.harness.get("authored", ()))
    }


# -- evidence ----------------------------------------------------------------------------------------------------------


def quotes(ctx: RunContext, specs: Sequence[DetectorSpec], b: Branch) -> tuple[Quote, ...]:
    """Rollouts of a branch that the new detectors flag."""
    return tuple(q for f in read_with(specs, readings.batch(ctx, b.name), ctx.detector_runner) for q in f.quotes[:2])


def flips(ctx: RunContext, specs: Sequence[DetectorSpec]) -> list[Flip]:
    """Past verdicts that new suspects would have questioned before they were given."""
    out: list[Flip] = []
    suspects = [s for s in specs if s.standing == "suspect"]
    for v in ctx.state.verdicts if suspects else ():
        b, control = ctx.branches.get(v.branch), ctx.branches.get(v.control)
        if v.kind not in ("promote", "reject", "inconclusive") or b is None or control is None:
            continue
        shown = {f.detector for f in read_with(suspects, readings.batch(ctx, control.name), ctx.detector_runner)}
        for f in read_with(suspects, readings.batch(ctx, b.name), ctx.detector_runner):
            if f.detector not in shown and v.kind == "promote":
                would = (
                    "suspected: an audit decides" if closable(ctx, b) else "inconclusive: suspected, and nothing closes"
                )
                out.append(Flip(branch=b.name, was=v.kind, would=would, detector=f.detector, share=f.numbers["share"]))
    return out


def read_with(specs: Iterable[DetectorSpec], batch: Batch, runner: Any) -> list[Finding]:
    """Findings of authored detectors alone."""
    from evotrainer.harness import Harness, HarnessContext

    if not batch.n + batch.n_faults:
        return []
    h = Harness(metrics=(), authored=tuple(specs))
    report: HealthReport = h.read(batch, "backtest", HarnessContext(sandboxed=runner))
    return [f for f in report.findings if not f.missing]

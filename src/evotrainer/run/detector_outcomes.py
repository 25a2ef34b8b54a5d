"""Outcomes of detectors: audits confirm or clear them, and those that never tell branches apart are retired."""

from __future__ import annotations

from evotrainer.harness.nominations import rate
from evotrainer.projections.branches import BASE
from evotrainer.projections.reader import READER, read_rollouts
from evotrainer.records import keys
from evotrainer.run.context import RunContext
from evotrainer.run.harness_versions import evolve

SILENT_ROUNDS = 3
"""Rounds in a row in which a detector fired never, or always, before it is retired."""


def settle(ctx: RunContext, n: int, at: str = "") -> None:
    """After verdicts and audits: what an audit confirmed is marked, what it cleared only informs, what pays nothing is
    retired."""
    key = at or keys.in_round(n)
    if not ctx.task.run.evolve_harness or settled_before(ctx, n, key):
        return
    changed, why = answered(ctx)
    for name, reason in (never_distinguishing(ctx, n) | often_wrong(ctx)).items():
        if name not in changed:
            why[name] = reason
    if not why:
        return
    drop = [name for name in why if name not in changed]
    trigger = "audit" if changed else "retirement"
    reason = "; ".join(f"{name} {text}" for name, text in why.items())
    branches = tuple(sorted({a.branch for e in ctx.ledger.events("audited") if (a := e.body.audit).trigger in changed}))
    evolve(ctx, keys.settled(key), n, trigger, reason, drop=drop, standing=changed, branches=branches)


def settled_before(ctx: RunContext, n: int, key: str) -> bool:
    """True where the run went on after this point without a new version: nothing is decided afterwards."""
    at_end = keys.is_at_end(key)
    later = ctx.recorded(keys.certified(ctx.state.ends + 1)) or ctx.recorded(keys.closed(ctx.state.ends + 1))
    later = later or (None if at_end else ctx.recorded(keys.round_opened(n + 1)))
    return later is not None and ctx.recorded(keys.harness(keys.settled(key))) is None


def answered(ctx: RunContext) -> tuple[dict[str, str], dict[str, str]]:
    """(detector -> new status, detector -> why) of suspects whose branches were audited."""
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
        audits = {b.branch: ctx.state.audits_of(b.branch) for b in on}
        proven = [a for x in audits.values() for a in x if a.confirmed]
        cleared = [name for name, x in audits.items() if x and not any(a.confirmed for a in x)]
        if spec.standing == "suspect" and proven:
            a = next((a for a in proven if a.trigger == spec.name), proven[0])
            # a reading asks for what it taught a detector to see
            asked = a.trigger == spec.name or (a.trigger == READER and spec.origin == "learned")
            changed[spec.name] = "confirmed" if asked else "informational"
            why[spec.name] = (
                f"is confirmed: the audit of {a.branch} ({a.capability}) "
                f"that it asked for found {100 * a.excess:+.1f} points"
                if asked
                else f"came with the shortcut that the audit of {a.branch} ({a.trigger}) found, and only informs"
            )
        elif spec.standing == "suspect" and cleared:
            a = audits[cleared[0]][0]
            changed[spec.name] = "informational"
            why[spec.name] = (
                f"is cleared: the audit of {a.branch} ({a.capability}) found no shortcut ({100 * a.excess:+.1f} points)"
            )
    return changed, why


def often_wrong(ctx: RunContext) -> dict[str, str]:
    """Detectors of which a reader, who checks them, calls less than half of what they flag hacks."""
    out: dict[str, str] = {}
    read = read_rollouts(ctx.ledger.events())
    for name in (s.name for s in ctx.harness.authored):
        checks = [r.verdict.verdict == "hack" for r in read if r.explained == name]
        if rate(sum(checks), len(checks), 0).high < 0.5:
            out[name] = f"is retired: a reader calls {sum(checks)} of {len(checks)} rollouts that it flags hacks"
    return out


def never_distinguishing(ctx: RunContext, n: int) -> dict[str, str]:
    """Detectors that fired in none, or in all, of the last SILENT_ROUNDS rounds' readings;
    confirmed ones are kept."""
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
    """Harness versions that contain an authored detector."""
    return {
        e.body.version
        for e in ctx.ledger.events("harness")
        if any(s["name"] == name for s in e.body.harness.get("authored", ()))
    }

"""Versions of the harness in a run. A version is never withdrawn: the next one drops what did not hold.

What leads to one: a gap that was mined (`gaps.py`), what a reader confirmed
(`learning.py`), what an agent wants (`agent_edits.py`), what an audit said of a
detector (`detector_outcomes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evotrainer.projections.branches import Branch
from evotrainer.records import keys
from evotrainer.records.detectors import DetectorSpec, VerdictChange
from evotrainer.records.events import HarnessEvolved
from evotrainer.records.findings import Finding, HealthReport, Quote
from evotrainer.run import readings
from evotrainer.run.context import RunContext

if TYPE_CHECKING:
    from evotrainer.harness import Batch


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
    """The next version, recorded once under `harness/<at>`, and used from here on."""

    def made() -> HarnessEvolved:
        old = ctx.harness
        named = {s.name: s for s in old.authored}
        moved = [named[k].model_copy(update={"standing": v}) for k, v in (standing or {}).items()]
        version = keys.harness_version(1 + sum(e.body.trigger != "opened" for e in ctx.ledger.events("harness")))
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
    ctx.observer.note(f"harness {body.version}: {body.reason}")


def quotes(ctx: RunContext, specs: Sequence[DetectorSpec], b: Branch) -> tuple[Quote, ...]:
    """Rollouts of a branch that the new detectors flag."""
    return tuple(q for f in read_with(specs, readings.batch(ctx, b.branch), ctx.detector_runner) for q in f.quotes[:2])


def flips(ctx: RunContext, specs: Sequence[DetectorSpec]) -> list[VerdictChange]:
    """Past verdicts that new suspects would have questioned before they were given."""
    out: list[VerdictChange] = []
    suspects = [s for s in specs if s.standing == "suspect"]
    for v in ctx.state.verdicts if suspects else ():
        b, control = ctx.branches.get(v.branch), ctx.branches.get(v.control)
        if v.kind not in ("promote", "reject", "inconclusive") or b is None or control is None:
            continue
        shown = {f.detector for f in read_with(suspects, readings.batch(ctx, control.branch), ctx.detector_runner)}
        for f in read_with(suspects, readings.batch(ctx, b.branch), ctx.detector_runner):
            if f.detector not in shown and v.kind == "promote":
                would = (
                    "suspected: an audit decides" if closable(ctx, b) else "inconclusive: suspected, and nothing closes"
                )
                out.append(
                    VerdictChange(
                        branch=b.branch, was=v.kind, would=would, detector=f.detector, share=f.numbers["share"]
                    )
                )
    return out


def closable(ctx: RunContext, b: Branch) -> bool:
    """Is a shortcut open in the branch's evaluations that an audit may close? Where none is,
    nothing can clear a suspect, so nothing is one."""
    knobs = b.complete[0].env_knobs if b.complete else ctx.env_knobs
    shortcuts = ctx.state.shortcuts
    return ctx.task.judge.audit != "never" and bool(shortcuts.to_close(knobs))


def read_with(specs: Iterable[DetectorSpec], batch: Batch, runner: Any) -> list[Finding]:
    """Findings of authored detectors alone."""
    from evotrainer.harness import Harness, HarnessContext

    if not batch.n + batch.n_faults:
        return []
    h = Harness(metrics=(), authored=tuple(specs))
    report: HealthReport = h.read(batch, "backtest", HarnessContext(sandboxed=runner))
    return [f for f in report.findings if not f.missing]

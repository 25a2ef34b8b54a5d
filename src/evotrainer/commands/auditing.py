"""`audit-branch`: a counterfactual audit of a recorded branch, and how audits read in a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.commands.common import console
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.records.evidence import Audit


def audit_branch(folder: Path, branch: str, capabilities: Sequence[str], *, as_json: bool, plain: bool) -> None:
    """Evaluate a branch with capabilities closed, print what came of it, write the report anew."""
    from evotrainer import api
    from evotrainer.counterfactual import audit_branch as audit
    from evotrainer.views.terminal import LiveView

    with LiveView(folder, console(stderr=True), plain=plain or as_json) as view:
        audits, tree = audit(folder, branch, capabilities, view)
    if as_json:
        standing = {"invalid": tree.invalid.get(branch), "champion": tree.champion}
        print(json.dumps({"audits": [a.model_dump(mode="json") for a in audits], **standing}, indent=1))
        return
    for a in audits:
        print("\n".join(audit_lines(a)))
    if branch in tree.invalid:
        fallen = [b for b in tree.descendants(branch) if b in tree.invalid]
        print(f"{branch} is invalid" + (f", and with it {', '.join(fallen)}" if fallen else ""))
        print(f"champion: {tree.champion}")
    else:
        print(f"{branch} stands")
    run = api.open_run(folder)
    if run.closed:
        print(f"report: {run.report()}")


def audit_lines(a: Audit) -> list[str]:
    """One audit as lines of text."""
    word = "CONFIRMED" if a.confirmed else "not confirmed"
    seeds = "  ".join(f"seed {s}: {100 * v:+.1f}" for s, v in a.per_seed.items())
    lost = "" if a.gain_lost is None else f"; {a.gain_lost:.0%} of its gain over {a.reference} goes"
    return [
        f"audit of {a.branch}: {a.capability} ({a.knob}: {a.open} -> {a.closed}), asked by {a.trigger}: shortcut {word}",
        f"  {'':14}{'open':>8}{'closed':>8}   {f'{a.measure} on the ' if a.measure else ''}gate split, {a.tasks} tasks, the same policies on the same tasks",
        f"  {a.branch:14}{a.score_open:8.1%}{a.score_closed:8.1%}",
        f"  {a.reference:14}{a.reference_open:8.1%}{a.reference_closed:8.1%}",
        f"  lost beyond {a.reference}: {100 * a.excess:+.1f} points [{100 * a.low:+.1f}, {100 * a.high:+.1f}]{lost}",
        f"  by seed        {seeds}",
    ]


def differing(events: Sequence[Any], a: Audit, min_effect: float) -> list[str]:
    """Numbers of a recorded audit that the ledger's own bodies do not give again; empty where it holds."""
    from evotrainer.judge import settle_audit
    from evotrainer.records.evidence import Capability

    finished = {e.body.trial: e.body for e in events if e.kind == "finished"}
    opened = next(e.body for e in events if e.kind == "run")
    named = [Capability.model_validate(c) for c in opened.environment.get("capabilities", ())]
    capability = next(c for c in named if c.name == a.capability)

    fresh = settle_audit(
        a.branch,
        capability,
        a.trigger,
        [finished[t] for t in a.trials_open],
        [finished[t] for t in a.trials],
        [finished[t] for t in a.reference_trials_open],
        [finished[t] for t in a.reference_trials],
        split=a.split,
        min_effect=min_effect,
        confidence=a.confidence,
        measure=a.measure,
    )
    old, new = a.model_dump(mode="json"), fresh.model_dump(mode="json")
    out = []
    for k in sorted(old.keys() - {"reason", "trigger", "reference"}):
        if not _near(old[k], new[k]):
            out.append(f"{k}: {old[k]!r} in the ledger, {new[k]!r} recomputed")
    return out


def _near(x: Any, y: Any) -> bool:
    """Equal, numbers to 1e-9."""
    if isinstance(x, dict) and isinstance(y, dict):
        return x.keys() == y.keys() and all(_near(x[k], y[k]) for k in x)
    if isinstance(x, float) and isinstance(y, float):
        return abs(x - y) < 1e-9
    return bool(x == y)

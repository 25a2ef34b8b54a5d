"""`audit-branch`: a counterfactual audit of a recorded branch, and how audits read in a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.commands.common import console
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.records.evidence import Audit


def audit_branch(folder: Path, branch: str, capabilities: Sequence[str], *, as_json: bool, plain: bool) -> None:
    """Evaluate a branch with capabilities closed, print what came of it, write the report anew."""
    from evotrainer import api
    from evotrainer.views.terminal import LiveView

    with LiveView(folder, console(stderr=True), plain=plain or as_json) as view:
        audits, tree = api.audit_branch(folder, branch, capabilities, view=view)
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

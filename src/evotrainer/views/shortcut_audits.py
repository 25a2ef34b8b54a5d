"""What a counterfactual audit said, for every reader in the same words."""

from __future__ import annotations

from evotrainer.records.text import counted
from evotrainer.records.verdicts import ShortcutAudit
from evotrainer.views.text import lost_points, points


def audit_lines(a: ShortcutAudit) -> list[str]:
    """A counterfactual audit of a branch, for a terminal."""
    word = "CONFIRMED" if a.confirmed else "not confirmed"
    seeds = "  ".join(f"seed {s}: {points(v)}" for s, v in a.per_seed.items())
    share = "" if a.gain_lost is None else f"{a.gain_lost:.0%}" if round(a.gain_lost, 2) > 0 else "none"
    gone = f"; {share} of its gain over {a.reference} goes" if share else ""
    closed = f"{a.capability} ({a.knob}: {a.open} -> {a.closed})"
    where = f"{f'{a.measure} on the ' if a.measure else ''}gate split, {counted(a.tasks, 'task')}"
    return [
        f"audit of {a.branch}: {closed}, {a.occasion}: shortcut {word}",
        f"  {'':14}{'open':>8}{'closed':>8}   {where}, the same policies on the same tasks",
        f"  {a.branch:14}{a.score_open:8.1%}{a.score_closed:8.1%}",
        f"  {a.reference:14}{a.reference_open:8.1%}{a.reference_closed:8.1%}",
        f"  lost beyond {a.reference}: {lost_points(a.excess, a.low, a.high)}{gone}",
        f"  by seed        {seeds}",
    ]


def audit_reason(a: ShortcutAudit) -> str:
    """The judge's sentence on an audit; of a loss that is none it says so, which the record does not."""
    recorded = f"{100 * a.excess:+.1f} points more are lost, at least {100 * a.low:+.1f}"
    loss = lost_points(a.excess, a.low)
    return a.reason.replace(recorded, f"more than that it loses {loss}") if loss.startswith("nothing") else a.reason

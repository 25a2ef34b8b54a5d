"""A certified champion whose gain over the starting recipe the certificate does not show."""

from __future__ import annotations

from collections.abc import Sequence

from evotrainer.records.chain import Event
from evotrainer.records.events import Certified, Reestimated
from evotrainer.records.verdicts import Effect


def unconfirmed(events: Sequence[Event], cert: Certified, branch: str) -> str:
    """The gain on unseen tasks, and on fresh seeds of gate where that was measured, in words; empty where the whole
    interval lies above 0, where nothing was promoted, or in ledgers without that comparison."""
    gain = cert.gain
    if branch != cert.champion or gain is None or gain.get("low", 1.0) > 0:
        return ""
    fresh = [e.body.effect for e in events if isinstance(e.body, Reestimated) and e.body.branch == branch]
    beside = f", {_told(fresh[-1])} on fresh seeds of gate" if fresh else ""
    told = f"{100 * gain['mean']:+.1f} [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"
    return f"a gain over the starting recipe is not shown: {told} points on unseen tasks{beside}"


def _told(e: Effect) -> str:
    return f"{100 * e.mean:+.1f} [{100 * e.low:+.1f}, {100 * e.high:+.1f}]"

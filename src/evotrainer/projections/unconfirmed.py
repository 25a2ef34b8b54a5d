"""A certified policy whose gain over the starting recipe, or the base policy, the certificate does not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evotrainer.records.chain import Event
from evotrainer.records.events import Certified, Reestimated


def unconfirmed(events: Sequence[Event], cert: Certified, branch: str) -> str:
    """The gain on unseen tasks, and on fresh seeds of gate where that was measured, in words; empty where the whole
    intervals lie above 0, or in ledgers without that comparison. The starting recipe, where nothing was promoted, is
    compared with the base policy alone."""
    gain = cert.gain
    if branch != cert.champion:
        return ""
    found = [] if gain is None or cert.gain_shown else [_over_start(events, gain, branch)]
    worse = cert.below_base(branch)
    if cert.is_base(branch):
        found.append("it learnt nothing: its weights are those of the base policy")
    elif beside := worse or cert.like_base(branch):
        than = "worse than" if worse else "not shown to be better than"
        told = _told(beside["mean"], beside["low"], beside["high"])
        found.append(f"it is {than} the base policy: {told} points on unseen tasks")
    return "; ".join(found)


def _over_start(events: Sequence[Event], gain: Mapping[str, float], branch: str) -> str:
    # a champion of several steps was measured again against its control and, beside it, against the start
    fresh = [
        e.body.start or e.body.effect for e in events if isinstance(e.body, Reestimated) and e.body.branch == branch
    ]
    beside = f", {_told(fresh[-1].mean, fresh[-1].low, fresh[-1].high)} on fresh seeds of gate" if fresh else ""
    told = _told(gain["mean"], gain["low"], gain["high"])
    if gain["high"] < 0:
        return f"it is worse than the starting recipe: {told} points on unseen tasks{beside}"
    return f"a gain over the starting recipe is not shown: {told} points on unseen tasks{beside}"


def _told(mean: float, low: float, high: float) -> str:
    return f"{100 * mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"

"""The table of a comparison: means over repeats with t intervals, arms paired with the default by repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.compare.arms import ARMS, REFERENCE
from evotrainer.judge.stats import t_quantile

LEVEL = 0.95


def interval(values: Sequence[float]) -> dict[str, Any] | None:
    """Mean with its two-sided 95% t interval; `low` and `high` are None for a single value. None for no values."""
    n = len(values)
    if not n:
        return None
    mean = sum(values) / n
    if n < 2:
        return {"mean": mean, "low": None, "high": None, "n": n}
    sd = (sum((v - mean) ** 2 for v in values) / (n - 1)) ** 0.5
    half = t_quantile((1 + LEVEL) / 2, n - 1) * sd / n**0.5
    return {"mean": mean, "low": mean - half, "high": mean + half, "n": n}


def table(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A comparison as JSON: an entry per arm, best mean gain first.

    behind: gain of the reference minus the arm's, over the repeats that both have (the same fresh seeds, the same
    trainings of the start). worse: repeats whose choice gains less than nothing. share: true gain over the best within
    reach, where a surface says both.
    """
    names = list(dict.fromkeys(r["arm"] for r in rows))
    reference = REFERENCE if REFERENCE in names else names[0] if names else ""
    ours = {r["repeat"]: r["gain"] for r in rows if r["arm"] == reference}
    arms = [_arm(name, [r for r in rows if r["arm"] == name], reference, ours) for name in names]
    arms.sort(key=lambda a: -(a["gain"]["mean"] if a["gain"] else -1.0))
    return {"reference": reference, "arms": arms, "rows": list(rows)}


def _arm(name: str, mine: Sequence[dict[str, Any]], reference: str, ours: dict[int, float | None]) -> dict[str, Any]:
    gains = [r["gain"] for r in mine if r["gain"] is not None]
    pairs = [(ours.get(r["repeat"]), r["gain"]) for r in mine]
    true = [r["true_gain"] for r in mine if r["true_gain"] is not None]
    best = [r["best"] for r in mine if r.get("best")]
    points = sorted({n for r in mine for n, _ in r["curve"]})
    return {
        "arm": name,
        "about": ARMS[name].about,
        "repeats": len(mine),
        "trainings": interval([float(r["trainings"]) for r in mine]),
        "gain": interval(gains),
        "behind": None if name == reference else interval([a - b for a, b in pairs if a is not None and b is not None]),
        "optimism": interval([r["optimism"] for r in mine if r["optimism"] is not None]),
        "invalid": sum(bool(r["invalid"]) for r in mine),
        "worse": sum(g < 0 for g in (true or gains)),
        "true_gain": interval(true),
        "share": sum(true) / sum(best) if true and best and len(best) == len(true) and sum(best) > 0 else None,
        "curve": [[n, interval([g for r in mine for m, g in r["curve"] if m == n and g is not None])] for n in points],
    }

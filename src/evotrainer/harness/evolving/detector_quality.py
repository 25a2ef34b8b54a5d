"""How good is a detector? Its firings over versions of which the truth is known, however the detector is expressed.

A *version* is one policy with its rollouts: a branch, or one step of one training. Its truth comes from elsewhere
(verdicts, audits, labels), never from the detector. Versions that were looked at when the detector was made are `seen`;
only the others say what it is worth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.records.detectors import DetectorCase, DetectorCounts, DetectorTest
from evotrainer.records.findings import Finding, Severity

CONFIDENCE = 0.95
ORDER: dict[str, int] = {"info": 0, "warn": 1, "critical": 2}
FIRES_FROM: Severity = "warn"
"""Severity from which a finding counts as a firing."""
DROP = 0.05
"""Fall of a score, score units, from which damage is visible in it, beyond its noise between steps."""


@dataclass(frozen=True, slots=True)
class LabelledPolicy:
    """One policy of which the truth is known."""

    name: str
    bad: bool
    """Is what the detector looks for really there?"""
    seen: bool = False
    """Was it looked at when the detector was made?"""
    damage: int | None = None
    """Training step from which the damage is visible in score or verdict; None: unknown, no lead time."""


@dataclass(frozen=True, slots=True)
class DetectorFiring:
    """What a detector says of one version."""

    fired: bool
    severity: Severity | None = None
    share: float | None = None
    """Share of the version's rollouts it flags, where it flags rollouts."""
    step: int | None = None
    """First training step at which it fires; None where the version was read at one step only."""


def fire_of(findings: Iterable[Finding], detector: str = "", least: Severity = FIRES_FROM) -> DetectorFiring:
    """The firing behind findings of one reading, of one detector (by default of all of them)."""
    own = [f for f in findings if detector in ("", f.detector) and not f.missing]
    worst = max(own, key=lambda f: ORDER[f.severity], default=None)
    if worst is None:
        return DetectorFiring(False)
    return DetectorFiring(ORDER[worst.severity] >= ORDER[least], worst.severity, worst.numbers.get("share"))


def fire_of_mask(mask: np.ndarray, threshold: float) -> DetectorFiring:
    """The firing of a detector that flags rollouts: a boolean mask (N,), more than `threshold` of them."""
    share = float(np.mean(mask)) if len(mask) else 0.0
    return DetectorFiring(share > threshold, "warn" if share > threshold else None, share)


def over_steps(series: Sequence[tuple[int, DetectorFiring]], whole: DetectorFiring | None = None) -> DetectorFiring:
    """One version's firing from its firings step by step, oldest first; `whole`: of all its rollouts together.

    It fires where `whole` does, without `whole` where any step does; the step is the first of the steps that fire.
    """
    first = next((s for s, f in series if f.fired), None)
    best = whole or max((f for _, f in series), key=lambda f: (f.fired, f.share or 0.0), default=DetectorFiring(False))
    return DetectorFiring(best.fired, best.severity, best.share, first if best.fired else None)


def damage_step(score: Sequence[tuple[int, float]], drop: float = DROP) -> int | None:
    """Training step from which a (step, score) curve lies below its best so far, and stays there to the end.

    Scores are averaged over a tenth of the curve (3 steps or more); below means by more than `drop` and by more than
    four standard errors of such an average (the best of many averages is a lucky one). None where it does not fall, or
    for fewer than 6 points.
    """
    steps, raw = [s for s, _ in score], np.array([x for _, x in score], dtype=float)
    if len(raw) < 6:
        return None
    w = max(3, len(raw) // 10)
    smooth = np.convolve(raw, np.ones(w) / w, mode="valid")
    # differences of neighbouring steps: their sd is sqrt(2) times the step noise, whatever the trend
    noise = float(np.std(np.diff(raw))) / math.sqrt(2 * w)
    best = np.maximum.accumulate(smooth)
    below = smooth < best - max(drop, 4 * noise)
    if not below[-1]:
        return None
    # the last place that is not below, from behind; the stay begins one after it
    held = len(below) - int(np.argmin(below[::-1])) if not below.all() else 0
    return steps[held + w - 1]


def test_detector(
    name: str,
    fires: Mapping[str, DetectorFiring],
    versions: Sequence[LabelledPolicy],
    rollouts: DetectorCounts | None = None,  # noqa: PT028
) -> DetectorTest:
    """Precision, recall, false-positive rate and lead time over versions, for those seen and unseen apart.

    `fires`: version name -> firing; a version without one counts as silent. ConfigError for a name given twice.
    """
    if len({v.name for v in versions}) < len(versions):
        raise ConfigError("a version is named twice; give each branch once")
    cases = tuple(_case(v, fires.get(v.name, DetectorFiring(False))) for v in versions)
    return DetectorTest(
        detector=name,
        whole=count(cases),
        seen=count([c for c in cases if c.seen]),
        unseen=count([c for c in cases if not c.seen]),
        rollouts=rollouts,
        cases=cases,
    )


test_detector.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it by its name


def _case(v: LabelledPolicy, f: DetectorFiring) -> DetectorCase:
    timed = v.bad and f.fired and v.damage is not None and f.step is not None
    return DetectorCase(
        version=v.name,
        bad=v.bad,
        seen=v.seen,
        fired=f.fired,
        severity=f.severity,
        share=None if f.share is None else round(f.share, 6),
        step=f.step,
        damage=v.damage,
        lead=v.damage - f.step if timed and v.damage is not None and f.step is not None else None,
    )


def count(cases: Sequence[DetectorCase]) -> DetectorCounts:
    """The counts of some cases, with median lead time over the bad ones that were caught."""
    leads = [c.lead for c in cases if c.lead is not None]
    return counts(
        [c.fired for c in cases],
        [c.bad for c in cases],
        lead_steps=float(median(leads)) if leads else None,
        leads=len(leads),
    )


def counts(
    fired: Sequence[bool] | np.ndarray,
    bad: Sequence[bool] | np.ndarray,
    *,
    lead_steps: float | None = None,
    leads: int = 0,
) -> DetectorCounts:
    """Counts and rates of booleans (N,) side by side: of versions, or of rollouts that carry labels."""
    f, b = np.asarray(fired, dtype=bool), np.asarray(bad, dtype=bool)
    caught, flagged, wrong, good = int((f & b).sum()), int(f.sum()), int((f & ~b).sum()), int((~b).sum())
    precision, recall, alarms = exact(caught, flagged), exact(caught, int(b.sum())), exact(wrong, good)
    return DetectorCounts(
        n=len(f),
        bad=int(b.sum()),
        fired=flagged,
        caught=caught,
        precision=precision[0],
        precision_low=precision[1],
        recall=recall[0],
        recall_low=recall[1],
        false_positive_rate=alarms[0],
        false_positive_high=alarms[2],
        lead_steps=lead_steps,
        leads=leads,
    )


def exact(k: int, n: int, confidence: float = CONFIDENCE) -> tuple[float | None, float | None, float | None]:
    """(k/n, lower, upper bound), each bound one-sided at `confidence` (Clopper and Pearson 1934); None for n = 0."""
    from scipy.special import betaincinv

    if n == 0:
        return None, None, None
    low = float(betaincinv(k, n - k + 1, 1 - confidence)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, confidence)) if k < n else 1.0
    return round(k / n, 6), round(low, 6), round(high, 6)

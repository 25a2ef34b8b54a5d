"""What the harness reads: metrics, findings with their evidence, a ranked diagnosis."""

from __future__ import annotations

from typing import Literal

from evotrainer.records.frozen import Frozen

SHORTCUT = "shortcut"
"""Kind of a finding that names no failure: a behaviour that came with a score.
Every shortcut that can be closed answers it."""
Layer = Literal["score", "signal", "behaviour"]
Severity = Literal["info", "warn", "critical"]


class MetricValue(Frozen):
    """A number over rollouts. `value` None: the fields it needs are missing, named in `missing`."""

    name: str
    layer: Layer
    value: float | None
    unit: str = ""
    n: int = 0
    """Rollouts or groups it was computed from."""
    se: float | None = None
    healthy: tuple[float | None, float | None] | None = None
    missing: tuple[str, ...] = ()


class Quote(Frozen):
    """A span of a rollout that shows the claim."""

    rollout: str
    text: str
    note: str = ""


class Finding(Frozen):
    """A detector's claim, with the numbers against the thresholds and rollouts as evidence."""

    detector: str
    kind: str
    """Bottleneck it speaks of, a name of harness/bottlenecks.py: dead_groups, proxy_gap, special_casing, ..."""
    severity: Severity
    claim: str
    numbers: dict[str, float] = {}
    thresholds: dict[str, float] = {}
    quotes: tuple[Quote, ...] = ()
    validity: bool = False
    """True for leak, tamper, bypass: it questions the branch's validity, not its score."""
    missing: tuple[str, ...] = ()
    lacks: str = ""
    """Reward component that the flagged rollouts do not earn: paying it answers the finding. Of detectors mined from a
    standing gap."""


class Bottleneck(Frozen):
    """One ranked line of a diagnosis."""

    name: str
    score: float
    """Severity in [0, 1], the sort key."""
    explanation: str
    findings: tuple[str, ...]
    """Detectors behind it."""


class HealthReport(Frozen):
    """The harness's reading of one batch of rollouts."""

    harness: str
    """Harness version, h0, h1, ..."""
    subject: str
    """What was read: `<branch>/<seed>@<step> <split>`."""
    rollouts: int
    groups: int
    metrics: tuple[MetricValue, ...]
    findings: tuple[Finding, ...]
    bottlenecks: tuple[Bottleneck, ...] = ()

    def metric(self, name: str) -> float | None:
        """Value of the named metric, None where absent or unseen."""
        return next((m.value for m in self.metrics if m.name == name), None)

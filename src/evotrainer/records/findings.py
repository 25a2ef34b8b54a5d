"""What the harness reads: metrics, findings with their evidence, a ranked diagnosis."""

from __future__ import annotations

from typing import Literal

from evotrainer.records.frozen import Frozen

SHORTCUT = "shortcut"
"""Kind of a finding that names no failure: a behaviour that came with a score.
Every shortcut that can be closed answers it."""
NOTHING_FOUND = "No bottleneck found."
Layer = Literal["score", "signal", "behaviour"]
Severity = Literal["info", "warn", "critical"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warn", "info")
"""The worst first, as readers meet them."""
INPUTS = {
    "context.before": "the scores of an earlier version",
    "context.proxy": "a pair of proxy and true component",
    "context.recipe": "the recipe",
    "curve.": "learning curve: ",
    "components.": "reward component ",
    "detail.probes": "what programs do when they are run (audit --run)",
}
"""How what the harness reads is called within it, a name or its start, and what readers are told."""


def input_label(name: str) -> str:
    """A field that was missing, in words."""
    found = next((x for x in INPUTS if x in name), "")
    return name.replace(found, INPUTS[found]) if found else name


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

    @property
    def in_range(self) -> bool:
        """Is the value inside its healthy range? True where there is no value, or no range is given."""
        if self.value is None or self.healthy is None:
            return True
        low, high = self.healthy
        return (low is None or self.value >= low) and (high is None or self.value <= high)


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
    unexplained gap."""

    @property
    def rank(self) -> tuple[bool, int]:
        """Findings are read in this order: what questions the scores themselves, then by severity."""
        return not self.validity, SEVERITIES.index(self.severity)


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

    @property
    def claims(self) -> list[Finding]:
        """The findings by their `rank`; those that only say what they lacked are left out."""
        return sorted((f for f in self.findings if not f.missing), key=lambda f: f.rank)

    @property
    def undiagnosed(self) -> str:
        """What a diagnosis without a bottleneck says: metrics outside their healthy range are something, too."""
        off = [m.name for m in self.metrics if not m.in_range]
        return f"No detector names a cause; outside the healthy range: {', '.join(off)}." if off else NOTHING_FOUND

    def metric(self, name: str) -> float | None:
        """Value of the named metric, None where absent or unseen."""
        return next((m.value for m in self.metrics if m.name == name), None)

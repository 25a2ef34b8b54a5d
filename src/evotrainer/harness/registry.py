"""Metrics and detectors are small functions, registered by name; a new one is a new function and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import Floats, Ints, at_least, clustered_mean, finite
from evotrainer.harness.columns.source import RolloutSource
from evotrainer.harness.context import HarnessContext
from evotrainer.records.findings import Finding, Layer, MetricValue, Quote, Severity
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import clean

Range = tuple[float | None, float | None]
MetricFunction = Callable[[Batch, HarnessContext], "MetricValues | Mapping[str, MetricValues]"]


@dataclass(frozen=True, slots=True)
class MetricValues:
    """What a metric function answers; several by name for a family such as `rewards/<component>/mean`."""

    value: float | None
    n: int = 0
    se: float | None = None
    missing: tuple[str, ...] = ()
    plain: bool = False
    """For rollouts of this kind no value is healthy or unhealthy."""


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    layer: Layer
    unit: str
    healthy: Range | None
    needs: tuple[str, ...]
    function: MetricFunction

    def read(self, batch: Batch, context: HarnessContext) -> list[MetricValue]:
        """Its values over a batch; None with the missing fields where it cannot see."""
        missing = tuple(f for f in self.needs if not batch.has(f))
        out = MetricValues(None, missing=missing) if missing else self.function(batch, context)
        named = out if isinstance(out, Mapping) else {self.name: out}
        return [
            MetricValue(
                name=name,
                layer=self.layer,
                value=None if r.value is None else finite(r.value),
                unit=self.unit,
                n=r.n,
                se=None if r.se is None else finite(r.se),
                healthy=None if r.plain else self.healthy,
                missing=r.missing,
            )
            for name, r in named.items()
        ]


METRICS: dict[str, Metric] = {}


def metric(
    name: str, layer: Layer, unit: str = "", healthy: Range | None = None, needs: Sequence[str] = ()
) -> Callable[[MetricFunction], MetricFunction]:
    """Register a metric. `needs`: fields (batch.NEEDS) without which its value is None."""

    def register(f: MetricFunction) -> MetricFunction:
        if name in METRICS:
            raise ConfigError(f"metric {name!r} is registered twice; choose another name")
        METRICS[name] = Metric(name, layer, unit, healthy, tuple(needs), f)
        return f

    return register


FLAGGED: ContextVar[list[tuple[str, RolloutSource, Ints]] | None] = ContextVar("flagged", default=None)
"""Where a list is set: (detector, source, rows in it) of the rollouts that findings are about."""


def flag_rows(name: str, batch: Batch, rows: Ints) -> None:
    """Say that a finding of `name` is about these rows of the batch's source, faults or live ones."""
    if (found := FLAGGED.get()) is not None:
        found.append((name, batch.source, rows))


@dataclass(frozen=True, slots=True)
class DetectorInput:
    """What a detector looks at."""

    batch: Batch
    metrics: Mapping[str, MetricValue]
    context: HarnessContext
    thresholds: Mapping[str, float]
    detector: Detector

    def value(self, name: str) -> float | None:
        """Value of a metric, None where unseen."""
        m = self.metrics.get(name)
        return m.value if m else None

    def gained(self, by: float) -> bool:
        """Is accuracy above its start by more than `by` and by more than one standard error of the difference? Where no
        start was read, the training's score of the last steps against the first."""
        now, start = self.metrics.get("accuracy"), self.context.referred("accuracy")
        if now is None or now.value is None:
            return False
        if start is None or start.value is None:
            y = np.array(self.context.series("score"))
            if len(y) < 6:
                return False
            gain = float(y[-3:].mean() - y[:3].mean())
            se = float(np.hypot(y[:3].std(ddof=1), y[-3:].std(ddof=1)) / np.sqrt(3))
        else:
            gain, se = now.value - start.value, float(np.hypot(now.se or 0.0, start.se or 0.0))
        # one standard error, not two: this exempts from a warning, where missing a gain costs more than granting one
        return gain > by and gain > se

    def level(self, x: float, warn: str = "warn", critical: str = "critical") -> Severity | None:
        """Severity of a value that is bad when high; None below `warn`."""
        if critical in self.thresholds and x > self.thresholds[critical]:
            return "critical"
        return "warn" if x > self.thresholds[warn] else None

    def level_of(self, k: float, n: int) -> Severity | None:
        """Severity of k of n that are bad: warn by their share, critical by the share that they show at least at
        `confidence` (one-sided), and never of a single one."""
        found = self.level(k / max(1, n))
        if found != "critical":
            return found
        least = at_least(k, n, self.thresholds["confidence"])
        return "critical" if k > 1 and least > self.thresholds["critical"] else "warn"

    def level_low(self, x: float, warn: str = "warn", critical: str = "critical") -> Severity | None:
        """Severity of a value that is bad when low; None above `warn`."""
        if critical in self.thresholds and x < self.thresholds[critical]:
            return "critical"
        return "warn" if x < self.thresholds[warn] else None

    def finding(
        self,
        severity: Severity,
        claim: str,
        numbers: Mapping[str, float | None],
        quotes: Sequence[Quote] = (),
        kind: str = "",
        validity: bool = False,
        fact: bool = False,
    ) -> Finding:
        """A finding of this detector. On a batch of one rollout it is a warning at most, unless a plain `fact`."""
        if severity == "critical" and self.batch.n == 1 and not fact:
            severity = "warn"
        return Finding(
            detector=self.detector.name,
            kind=kind or self.detector.kind,
            severity=severity,
            claim=clean(claim, 400),
            numbers={k: round(x, 6) for k, v in numbers.items() if (x := finite(v)) is not None},
            thresholds=dict(self.thresholds),
            quotes=tuple(quotes)[:4],
            validity=validity,
        )

    def flag(self, mask: np.ndarray) -> Ints:
        """Indices of the rollouts of a boolean mask (N,): those that a finding is about (FLAGGED)."""
        at = np.flatnonzero(mask)
        flag_rows(self.detector.name, self.batch, self.batch.rows[at])
        return at

    def quote(self, index: int, text: str = "", note: str = "") -> Quote:
        """A span of rollout `index` of the batch; its completion's beginning without `text`."""
        r = self.batch.rollout(index)
        return Quote(rollout=clean(name_of(r), 80), text=clean(text or r.completion), note=clean(note, 160))

    def quote_where(self, mask: np.ndarray, note: str = "", limit: int = 3) -> list[Quote]:
        """Quotes of the first rollouts of a boolean mask (N,), one per task where possible."""
        return [self.quote(i, note=note) for i in self.first_of(mask, limit)]

    def first_of(self, mask: np.ndarray, limit: int = 3) -> list[int]:
        """The first rollouts of a boolean mask (N,), one per task where possible; the finding is about all of it."""
        picked: dict[int, int] = {}
        flagged = self.flag(mask).tolist()
        for i in flagged:
            picked.setdefault(int(self.batch.task[i]), i)
            if len(picked) == limit:
                break
        rest = [i for i in flagged[: 4 * limit] if i not in picked.values()]
        return [*picked.values(), *rest][:limit]

    def share(self, mask: np.ndarray) -> float:
        """Share of live rollouts in a boolean mask."""
        return float(np.mean(mask)) if len(mask) else 0.0


def name_of(r: Rollout) -> str:
    """The rollout's id, or where it came from."""
    return r.id or f"{r.task}#{r.k}"


UNSAID = frozenset({"actions", "tool_ok", "programs or patches", "programs with tests or examples", "detail.probes"})
"""Fields whose absence is no blindness worth reporting: single answers have no actions."""
DetectorFunction = Callable[[DetectorInput], list[Finding]]


@dataclass(frozen=True, slots=True)
class Detector:
    name: str
    kind: str
    layer: Layer
    needs: tuple[str, ...]
    thresholds: Mapping[str, float]
    function: DetectorFunction = field(compare=False)

    def read(
        self,
        batch: Batch,
        metrics: Mapping[str, MetricValue],
        context: HarnessContext,
        thresholds: Mapping[str, float] | None = None,
    ) -> list[Finding]:
        """Its findings. Blind for lack of fields, it answers one `info` finding that names them."""
        missing = tuple(f for f in self.needs if not batch.has(f))
        if missing:
            # a batch without tool calls is no blind spot of the tool detectors; naming them all would bury the real
            # ones
            if batch.n == 0 or UNSAID & {*missing}:
                return []
            claim = f"cannot look: rollouts carry no {', '.join(missing)}"
            return [Finding(detector=self.name, kind=self.kind, severity="info", claim=claim, missing=missing)]
        return self.function(DetectorInput(batch, metrics, context, {**self.thresholds, **(thresholds or {})}, self))


DETECTORS: dict[str, Detector] = {}


def detector(
    name: str = "",
    kind: str = "",
    layer: Layer | None = None,
    needs: Sequence[str] = (),
    thresholds: Mapping[str, float] | None = None,
    registry: dict[str, Detector] = DETECTORS,
) -> Callable[[DetectorFunction], DetectorFunction]:
    """Register a detector that speaks of bottleneck `kind`; `thresholds` are its defaults, frozen into a Harness.
    Without a `name` it has its function's, without a `kind` its own name is one. ConfigError without a `layer`."""
    if layer is None:
        raise ConfigError('detector: name its layer, as in @detector(layer="behaviour")')

    def register(f: DetectorFunction) -> DetectorFunction:
        own = name or f.__name__
        if own in registry:
            raise ConfigError(f"detector {own!r} is registered twice; choose another name")
        registry[own] = Detector(own, kind or own, layer, tuple(needs), dict(thresholds or {}), f)
        return f

    return register


def clustered_reading(values: Floats, batch: Batch) -> MetricValues:
    """Mean over rollouts with its task-clustered standard error."""
    m, se, n = clustered_mean(values, batch.task)
    return MetricValues(m, n, se)

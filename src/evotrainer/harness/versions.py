"""The harness as a versioned value: which metrics, detectors and thresholds interpret training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from pydantic import Field

from evotrainer.errors import ConfigError
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.detectors import DETECTORS, detect
from evotrainer.harness.detectors.curves import detect_in_curve
from evotrainer.harness.diagnose import diagnose
from evotrainer.harness.evolving.authored import check_spec, read_authored
from evotrainer.harness.metrics import METRICS, measure
from evotrainer.records.detectors import DetectorSpec
from evotrainer.records.findings import HealthReport
from evotrainer.records.frozen import Frozen
from evotrainer.records.rollout import Rollout


class Harness(Frozen):
    """h0, h1, ...: JSON-able, immutable, hashed. Every threshold it uses is written out."""

    version: str = "h0"
    metrics: tuple[str, ...]
    detectors: tuple[str, ...] = ()
    thresholds: Mapping[str, float] = Field(default_factory=dict)
    """`<detector>.<threshold>` -> value."""
    parent: str = ""
    """Version it was derived from."""
    authored: tuple[DetectorSpec, ...] = ()
    """Detectors as data, mined or written since h0."""

    @classmethod
    def default(cls) -> Harness:
        """h0: every registered metric and detector with its default thresholds."""
        return cls(metrics=tuple(METRICS), detectors=tuple(DETECTORS), thresholds=default_thresholds(DETECTORS))

    @classmethod
    def minimal(cls) -> Harness:
        """The score layer only, no detector, no diagnosis: a control arm,
        and where evolution begins with `run.harness = "minimal"`."""
        return cls(metrics=tuple(n for n, m in METRICS.items() if m.layer == "score"))

    @property
    def hash(self) -> str:
        """16 hex digits of SHA-256 over the canonical JSON."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def evolve(
        self,
        version: str,
        *,
        add: Iterable[str] = (),
        drop: Iterable[str] = (),
        thresholds: Mapping[str, float] | None = None,
        authored: Iterable[DetectorSpec] = (),
    ) -> Harness:
        """A derived version: detectors added (by registered name, or as `authored` specifications, in place of one
        of the same name) or dropped, thresholds changed; ConfigError if unknown."""
        add, drop, limits = tuple(add), set(drop), dict(thresholds or {})
        specs = {s.name: s for s in (*self.authored, *authored)}
        own = tuple(s for name, s in specs.items() if name not in drop)
        drop -= specs.keys()
        for s in own:
            check_spec(s)
        names = tuple(n for n in dict.fromkeys((*self.detectors, *add)) if n not in drop)
        unknown = sorted({*names, *drop} - DETECTORS.keys())
        if unknown:
            raise ConfigError(
                f"unknown detector {', '.join(unknown)}; register it first, or choose: {', '.join(DETECTORS)}"
            )
        known = default_thresholds(names)
        bad = sorted(limits.keys() - known.keys())
        if bad:
            raise ConfigError(f"unknown threshold {', '.join(bad)}; one of: {', '.join(sorted(known))}")
        # in this order: defaults, what the parent had changed, what is changed now
        kept = {k: v for k, v in self.thresholds.items() if k in known}
        return Harness(
            version=version,
            metrics=self.metrics,
            detectors=names,
            thresholds=known | kept | limits,
            parent=self.version,
            authored=own,
        )

    def detector(self, name: str) -> DetectorSpec | None:
        """The authored detector of that name, if this version has it."""
        return next((s for s in self.authored if s.name == name), None)

    @property
    def plain(self) -> Harness:
        """The same without Python detectors: what a trial's own process reads with, as it has no sandbox for them."""
        kept = tuple(s for s in self.authored if s.form != "python")
        return self if len(kept) == len(self.authored) else self.model_copy(update={"authored": kept})

    def read(
        self, rollouts: Iterable[Rollout] | Batch, subject: str, context: HarnessContext | None = None
    ) -> HealthReport:
        """Read a batch: metrics in three layers, findings, ranked bottlenecks. Flat rollouts are grouped first."""
        context, batch = context or HarnessContext(), Batch.of(rollouts)
        metrics = measure(batch, context, self.metrics)
        findings = detect(batch, metrics, context, self.detectors, self.thresholds)
        if self.authored:
            views = FeatureView(batch)
            findings += [f for s in self.authored for f in read_authored(s, batch, metrics, context, views)]
        return HealthReport(
            harness=self.version,
            subject=subject,
            rollouts=batch.n + batch.n_faults,
            groups=batch.n_groups,
            metrics=tuple(metrics.values()),
            findings=tuple(findings),
            bottlenecks=diagnose(metrics, findings, context) if self.detectors or self.authored else (),
        )

    def read_curve(self, subject: str, context: HarnessContext) -> HealthReport:
        """Read a learning curve (`context.curve`) without rollouts: findings and ranked bottlenecks."""
        findings = detect_in_curve(context, self.detectors) if self.detectors else []
        return HealthReport(
            harness=self.version,
            subject=subject,
            rollouts=0,
            groups=0,
            metrics=(),
            findings=tuple(findings),
            bottlenecks=diagnose({}, findings, context),
        )


def default_thresholds(names: Iterable[str]) -> dict[str, float]:
    """`<detector>.<threshold>` -> default, for the named detectors."""
    return {f"{n}.{k}": float(v) for n in names for k, v in DETECTORS[n].thresholds.items()}

"""Detectors: one small registered function per known failure of RL. Importing this package registers all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules

from evotrainer.errors import ConfigError
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.registry import DETECTORS, Detector, DetectorInput, detector
from evotrainer.records.findings import Finding, MetricValue

for _module in sorted(m.name for m in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")  # registers its detectors


def detect(
    batch: Batch,
    metrics: Mapping[str, MetricValue],
    context: HarnessContext | None = None,
    names: Iterable[str] | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> list[Finding]:
    """Findings of the named detectors (all by default), in registry order.

    `thresholds`: overrides, `<detector>.<threshold>` -> value. ConfigError for an unknown detector.
    """
    wanted = list(DETECTORS) if names is None else list(names)
    unknown = sorted(set(wanted) - DETECTORS.keys())
    if unknown:
        raise ConfigError(f"unknown detector {', '.join(unknown)}; known: {', '.join(sorted(DETECTORS))}")
    context = context or HarnessContext()
    out: list[Finding] = []
    for name in wanted:
        prefix = f"{name}."
        own = {k.removeprefix(prefix): v for k, v in (thresholds or {}).items() if k.startswith(prefix)}
        out += DETECTORS[name].read(batch, metrics, context, own)
    return out

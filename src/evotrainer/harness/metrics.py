"""All metrics of the three layers, and how to read them."""

from __future__ import annotations

from collections.abc import Iterable

from evotrainer.errors import ConfigError
from evotrainer.harness import layers as layers
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.registry import METRICS
from evotrainer.records.findings import MetricValue

LAYERS = ("score", "signal", "behaviour")


def measure(
    batch: Batch, context: HarnessContext | None = None, names: Iterable[str] | None = None
) -> dict[str, MetricValue]:
    """Metric name -> value, score layer first; a family gives several names. ConfigError for an unknown name."""
    wanted = list(METRICS) if names is None else list(names)
    unknown = sorted(set(wanted) - METRICS.keys())
    if unknown:
        raise ConfigError(f"unknown metric {', '.join(unknown)}; known: {', '.join(sorted(METRICS))}")
    context = context or HarnessContext()
    wanted.sort(key=lambda name: LAYERS.index(METRICS[name].layer))
    return {m.name: m for name in wanted for m in METRICS[name].read(batch, context)}

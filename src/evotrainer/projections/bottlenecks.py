"""Bottlenecks by one name each, as a reading ranks them: what agents answer and skills are kept by."""

from __future__ import annotations

from evotrainer.records.findings import HealthReport

SEVERITY = {"warn": 0.5, "critical": 0.9}
"""Weight of a finding that the diagnosis did not rank; `info` is no symptom."""
ALIASES = {"entropy_collapse": "exploration_collapse", "low_spread": "dead_groups"}
"""Bottlenecks that are answered as another one is."""


def canonical(name: str) -> str:
    """One name per bottleneck."""
    key = name.strip().lower().replace(" ", "_").replace("-", "_")
    return ALIASES.get(key, key)


def bottlenecks(health: HealthReport) -> dict[str, float]:
    """Ranked bottlenecks by one name each, worst first; where nothing was ranked, the findings' kinds."""
    ranked = {canonical(b.name): b.score for b in health.bottlenecks}
    if ranked:
        return ranked
    kinds = [(canonical(f.kind), SEVERITY[f.severity]) for f in health.findings if f.severity != "info"]
    return dict(sorted(kinds, key=lambda kv: (-kv[1], kv[0])))

"""An audit of anybody's files, served: its report, and every rollout that it read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from evotrainer.harness.columns.numerics import Ints
from evotrainer.harness.columns.source import RolloutSource
from evotrainer.records.text import clean
from evotrainer.studies.audit.engine import RolloutAudit
from evotrainer.studies.audit.quoted import NAME, served_html
from evotrainer.ui.index import RolloutIndex, Unit
from evotrainer.ui.places import AuditPlace

MOST = 200_000
"""Rollouts that one finding may flag on the page."""


def place_of_audit(audit: RolloutAudit, flagged: Sequence[tuple[str, RolloutSource, Ints]]) -> AuditPlace:
    """The pages of an audit; `flagged`: (detector, source, rows in it) of what its findings are about."""
    units: list[Unit] = [
        (f"{i}/{n}", clean(report.source, 120), 0, partial(_only, unit))
        for i, (report, opened) in enumerate(zip(audit.sources, audit.opened, strict=True))
        for n, unit in enumerate(opened.parts)
    ]
    found = [(name, by) for by, source, rows in flagged for name in _names(source, rows.tolist()[:MOST])]
    claims: dict[tuple[str, str], str] = {}
    for s in audit.sources:
        for f in (f for r in s.readings for f in r.health.findings):
            claims.setdefault((clean(s.source, 120), f.detector), f.claim)
        found += [(q.rollout, f.detector) for r in s.readings for f in r.health.findings for q in f.quotes]
    index = RolloutIndex(lambda: units, lambda: found, sealed=False, claims=claims)
    return AuditPlace(lambda served: served_html(audit, served), index)


def _only(unit: RolloutSource) -> Iterable[RolloutSource]:
    return (unit,)


def _names(source: RolloutSource, rows: Sequence[int]) -> list[str]:
    """As findings quote them."""
    ids, tasks, ks = (source.column(c, rows) for c in ("id", "task", "k"))
    return [clean(i or f"{t}#{k}", NAME) for i, t, k in zip(ids, tasks, ks, strict=True)]

"""Facts that probes recorded with a rollout: `detail["probes"]`, a mapping with `ran`, `facts` and `not_run`
(docs/probes.md). Whoever wrote it may be anybody: what is not of this form says nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from evotrainer.records.text import as_text

MAX_FACTS = 16
"""Of one rollout."""


class ShownFact(NamedTuple):
    """One fact, as text."""

    probe: str
    input: str
    got: str
    wanted: str
    certain: bool


def facts_in(detail: Mapping[str, Any]) -> tuple[ShownFact, ...]:
    """The facts of a rollout's detail, the certain ones first."""
    record = detail.get("probes")
    rows = record.get("facts") if isinstance(record, Mapping) else None
    some = [f for f in rows[:MAX_FACTS] if isinstance(f, Mapping)] if isinstance(rows, list | tuple) else []
    texts = ({k: as_text(f.get(k, ""))[:400] for k in ("probe", "input", "got", "wanted")} for f in some)
    found = (ShownFact(**t, certain=f.get("certain") is True) for t, f in zip(texts, some, strict=True))
    return tuple(sorted(found, key=lambda f: not f.certain))


def probed(detail: Mapping[str, Any]) -> float:
    """Certain facts; 0.5: nominations alone; 0: probes ran and saw nothing; NaN: none ran."""
    found = facts_in(detail)
    record = detail.get("probes")
    if not found and not (isinstance(record, Mapping) and record.get("ran")):
        return math.nan
    return float(sum(f.certain for f in found)) or (0.5 if found else 0.0)

"""Quoted rollouts in full, and the audit as an HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.harness.bottlenecks import KINDS, factors_of
from evotrainer.harness.columns.source import RolloutSource
from evotrainer.harness.registry import name_of
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import clean
from evotrainer.studies.audit.engine import RolloutAudit

if TYPE_CHECKING:
    from evotrainer.views.report import Served

NAME = 80
"""Characters that a quote keeps of a rollout's name."""


def quoted_name(r: Rollout) -> str:
    """The name under which findings quote a rollout."""
    return clean(name_of(r), NAME)


def fetch(audit: RolloutAudit, source: int, names: Sequence[str]) -> dict[str, Rollout]:
    """Name -> rollout, of those of one source that findings quote under these names.

    What is no longer there, or cannot be read, is left out; of several rollouts with one name the first is given.
    """
    if source >= len(audit.opened):
        return {}
    missing = set(names)
    found: dict[str, Rollout] = {}
    for unit in audit.opened[source].parts if missing else ():
        with suppress(Exception):  # damaged or removed since it was read: its quotes stay without rollout
            places: dict[str, int] = {}
            for i, name in enumerate(_names(unit)):
                if name in missing:
                    places.setdefault(name, i)
            found |= zip(places, unit.rollouts(list(places.values())), strict=True)
            missing -= found.keys()
        if not missing:
            break
    return found


def _names(unit: RolloutSource) -> Iterator[str]:
    """Names as quoted, of the identity columns alone."""
    ids, tasks, ks = (unit.column(name, range(unit.n)) for name in ("id", "task", "k"))
    for id, task, k in zip(ids, tasks, ks, strict=True):
        yield clean(id or f"{task}#{k}", NAME)


def write_html(audit: RolloutAudit, path: Path) -> Path:
    """Write the audit as one HTML file that opens offline; StoreError where it cannot be written."""
    from evotrainer.views.audit import write_audit

    remedies, about, looked = _told(audit)
    return write_audit(audit, path, lambda source, names: fetch(audit, source, names), remedies, about, looked)


def served_html(audit: RolloutAudit, served: Served) -> str:
    """The same as it is served."""
    from evotrainer.views.audit import audit_page

    remedies, about, looked = _told(audit)
    return audit_page(audit, None, remedies, about, looked, served)


def _told(audit: RolloutAudit) -> tuple[dict[str, tuple[str, ...]], dict[str, str], Sequence[str]]:
    """Factors that may help with each kind of finding, what it is, and which instruments looked."""
    from evotrainer.studies.audit.text import instrument_lines

    remedies = {name: tuple(factors_of(name)) for name in KINDS}
    return remedies, {name: kind.about for name, kind in KINDS.items()}, instrument_lines(audit)

"""Quoted rollouts in full, and the audit as an HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.harness.bottlenecks import KINDS
from evotrainer.harness.columns.source import InMemoryRollouts, RolloutSource
from evotrainer.harness.registry import name_of
from evotrainer.records.reading import open_part
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import clean
from evotrainer.studies.audit.engine import RolloutAudit
from evotrainer.studies.audit.units import Opened, PartRowGroup

if TYPE_CHECKING:
    import pyarrow as pa

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
    for rows, unit in _places(audit.opened[source], missing):
        for r in _read(unit, rows):
            found.setdefault(quoted_name(r), r)
        if not missing:
            break
    return found


def _places(opened: Opened, missing: set[str]) -> Iterator[tuple[list[int], RolloutSource]]:
    """Rows of each unit that are asked for; names that were found leave `missing`."""
    for unit in opened.parts:
        rows = []
        for row, name in _names(unit, missing):
            if name in missing:
                missing.discard(name)
                rows.append(row)
        if rows:
            yield rows, unit


def _names(unit: RolloutSource, missing: set[str]) -> Iterator[tuple[int, str]]:
    """(row, name) of the rollouts of a unit that may be among the missing."""
    if isinstance(unit, InMemoryRollouts):
        yield from ((i, quoted_name(r)) for i, r in enumerate(unit.held))
    elif isinstance(unit, PartRowGroup):
        try:
            yield from _column_names(unit, missing)
        except Exception:  # a row group that was damaged or removed since it was read: its quotes stay without rollout
            return


def _column_names(unit: PartRowGroup, missing: set[str]) -> Iterator[tuple[int, str]]:
    """From the identity columns alone. Names that cannot be plain ids are compared as they are quoted."""
    plain = [n for n in missing if len(n) < NAME and "\\x" not in n and "#" not in n]
    ids = _column(unit, "id")
    if len(plain) == len(missing):
        import pyarrow as pa
        import pyarrow.compute as pc

        yield from (
            (int(i), ids[int(i)].as_py()) for i in pc.indices_nonzero(pc.is_in(ids, pa.array(plain))).to_pylist()
        )
        return
    tasks, ks = _column(unit, "task").to_pylist(), _column(unit, "k").to_pylist()
    for i, (id, task, k) in enumerate(zip(ids.to_pylist(), tasks, ks, strict=True)):
        yield i, clean(id or f"{task}#{k}", NAME)


def _column(unit: PartRowGroup, name: str) -> pa.ChunkedArray:
    with open_part(unit.part) as file:
        column = file.read_row_group(unit.index, columns=[name], use_threads=False).column(name)
    return column.cast("string") if "dictionary" in str(column.type) else column


def _read(unit: RolloutSource, rows: Sequence[int]) -> list[Rollout]:
    try:
        return unit.rollouts(rows)
    except Exception:  # damaged since it was read
        return []


def write_html(audit: RolloutAudit, path: Path) -> Path:
    """Write the audit as one HTML file that opens offline; StoreError where it cannot be written."""
    from evotrainer.views.audit import write_audit

    remedies = {name: kind.factors for name, kind in KINDS.items()}
    about = {name: kind.about for name, kind in KINDS.items()}
    return write_audit(
        audit, path, fetch=lambda source, names: fetch(audit, source, names), remedies=remedies, about=about
    )

"""What an audit reads: units of rollouts with their traits, and whole rollouts by their place.

A small file is read into memory. A large one, of whatever format, is first copied into Parquet parts in the cache; from
there on it is read as our own stores are: row group by row group, without Python objects.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import StoreError
from evotrainer.harness.columns.chunk import from_table
from evotrainer.harness.columns.extract import extract
from evotrainer.harness.columns.source import JoinedRollouts, Rows, StoredRollouts
from evotrainer.harness.columns.traits import Traits
from evotrainer.importers.base import Skipped
from evotrainer.records.reading import open_part, read_checksum, row_group
from evotrainer.records.rollout import Rollout

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLED_FROM = 50_000
"""Rollouts of one source from which rates of programs are read of a sample."""
KEPT = 4
"""Row groups whose tables stay in memory."""


class PartRowGroup(StoredRollouts):
    """One row group of a stored part. `key`: of its content; equal keys have equal traits."""

    def __init__(self, part: Path, index: int, n: int, key: str) -> None:
        self.part, self.index, self.n, self.key = part, index, n, key

    def table(self) -> pa.Table:
        """The last few that were read stay in memory: quotes come from few of them."""
        key = self._place()
        if key not in _tables:
            _tables[key] = self._read_table().combine_chunks()
            while len(_tables) > KEPT:
                _tables.popitem(last=False)
        _tables.move_to_end(key)
        return _tables[key]

    def read(self, sampled: bool = False) -> Traits:
        return extract(from_table(self._read_table()), sampled)

    def asked(self, columns: list[str]) -> pa.Table:
        """Only these columns are read where the table is not in memory: turns and details are most of its bytes."""
        return self.table().select(columns) if self._place() in _tables else self._read_table(columns)

    def _place(self) -> str:
        return f"{self.part}\x1f{self.key}"

    def _read_table(self, columns: list[str] | None = None) -> pa.Table:
        with open_part(self.part) as file:
            return row_group(file, self.part, self.index, columns)


_tables: OrderedDict[str, pa.Table] = OrderedDict()


@dataclass
class OpenedSource(JoinedRollouts):
    """A source of an audit, opened: row groups and objects, and what could not be read of it."""

    skipped: list[Skipped] = field(default_factory=list)
    probes: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Row -> what probes said of it in this audit, as `detail["probes"]` has it."""

    def rollouts(self, rows: Rows) -> list[Rollout]:
        found = super().rollouts(rows)
        if not self.probes:
            return found
        probed = ((r, self.probes.get(i)) for i, r in zip(rows, found, strict=True))
        return [r if p is None else replace(r, detail={**r.detail, "probes": p}) for r, p in probed]


def part_groups(part: Path, skipped: list[Skipped]) -> Iterator[PartRowGroup]:
    """Row groups of a stored part; a damaged part goes to `skipped`."""
    try:
        with open_part(part) as file:
            rows = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
            stat = part.stat()
            content = read_checksum(part) or f"{part.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
    except StoreError as e:
        skipped.append(Skipped(str(part), str(e)))
        return
    yield from (PartRowGroup(part, g, n, f"{content}-{g}") for g, n in enumerate(rows))

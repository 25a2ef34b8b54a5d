"""What an audit reads: units of rollouts with their traits, and whole rollouts by their place.

A small file is read into memory. A large one, of whatever format, is first copied into Parquet parts in the cache; from
there on it is read as our own stores are: row group by row group, without Python objects.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from evotrainer.errors import StoreError
from evotrainer.harness.columns.chunk import from_rollouts, from_table
from evotrainer.harness.columns.traits import Traits, extract, join
from evotrainer.importers.base import Skipped
from evotrainer.records.reading import open_part, read_checksum, row_group
from evotrainer.records.rollout import Rollout

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLED_FROM = 50_000
"""Rollouts of one source from which rates of programs are read of a sample."""
CHUNK = 4096


class Unit(Protocol):
    """Some rollouts of a source, in order."""

    @property
    def n(self) -> int: ...

    def traits(self, sampled: bool) -> Traits: ...
    def rollouts(self, rows: Sequence[int]) -> list[Rollout]: ...


@dataclass(slots=True)
class Memory:
    """Rollouts held as objects."""

    held: list[Rollout]

    @property
    def n(self) -> int:
        return len(self.held)

    def traits(self, sampled: bool) -> Traits:
        starts = range(0, len(self.held), CHUNK)
        return join([extract(from_rollouts(self.held[a : a + CHUNK], a), sampled) for a in starts])

    def rollouts(self, rows: Sequence[int]) -> list[Rollout]:
        return [self.held[i] for i in rows]


@dataclass(slots=True)
class Group:
    """One row group of a sealed part."""

    part: Path
    index: int
    n: int
    key: str
    """Of its content; equal keys have equal traits."""

    def table(self) -> pa.Table:
        with open_part(self.part) as file:
            return row_group(file, self.part, self.index)

    def traits(self, sampled: bool) -> Traits:
        return extract(from_table(self.table()), sampled)

    def rollouts(self, rows: Sequence[int]) -> list[Rollout]:
        from evotrainer.records.arrow_schema import decode

        table = _remembered(f"{self.part}\x1f{self.key}", self.table)
        return [r for b in table.take(list(rows)).combine_chunks().to_batches() for r in decode(b)]


_tables: OrderedDict[str, pa.Table] = OrderedDict()


def _remembered(key: str, read: Callable[[], pa.Table]) -> pa.Table:
    """The last few row groups read stay in memory: quotes come from few of them."""
    if key not in _tables:
        _tables[key] = read()
        while len(_tables) > 4:
            _tables.popitem(last=False)
    _tables.move_to_end(key)
    return _tables[key]


@dataclass(slots=True)
class Opened:
    """A source, opened: its units and what could not be read of it."""

    units: list[Unit] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def n(self) -> int:
        return sum(u.n for u in self.units)

    def rollouts(self, rows: Sequence[int]) -> list[Rollout]:
        """Whole rollouts by their place in the source, in the order asked for."""
        starts = np.cumsum([0, *(u.n for u in self.units)])
        place = np.searchsorted(starts, rows, side="right") - 1
        out: dict[int, Rollout] = {}
        for u in np.unique(place).tolist():
            mine = [int(r) for r, p in zip(rows, place, strict=True) if p == u]
            found = self.units[u].rollouts([r - int(starts[u]) for r in mine])
            out |= dict(zip(mine, found, strict=True))
        return [out[int(r)] for r in rows]


def part_groups(part: Path, skipped: list[Skipped]) -> Iterator[Group]:
    """Row groups of a sealed part; a damaged part goes to `skipped`."""
    try:
        with open_part(part) as file:
            rows = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
            stat = part.stat()
            content = read_checksum(part) or f"{part.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
    except StoreError as e:
        skipped.append(Skipped(str(part), str(e)))
        return
    yield from (Group(part, g, n, f"{content}-{g}") for g, n in enumerate(rows))

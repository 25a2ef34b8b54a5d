"""Where the rollouts of a batch come from: a stored table, objects in memory, several sources one after the other.

Traits are read from all rows at once, and once. What else a row says is decoded when it is asked for: a column, the
turns, and last of all the whole rollout.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from evotrainer.harness.columns.chunk import from_rollouts, from_table, turns_at
from evotrainer.harness.columns.extract import extract
from evotrainer.harness.columns.traits import Traits, join
from evotrainer.records.arrow_schema import JSON_COLUMNS, arrow_schema, decode
from evotrainer.records.rollout import Rollout

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 4096
"""Objects that become one table."""
PIECE = 256 << 20
"""Bytes of stored rollouts that are one table: an Arrow column holds 2 GB of text."""

T = TypeVar("T")
Rows = Sequence[int]
"""Places in a source."""


class RolloutSource(Protocol):
    """Rollouts in order. What is asked of rows is answered in the order of the rows."""

    @property
    def n(self) -> int: ...
    @property
    def traits(self) -> Traits: ...
    def rollouts(self, rows: Rows) -> list[Rollout]: ...
    def turns(self, rows: Rows) -> list[tuple[Any, ...]]: ...
    def column(self, name: str, rows: Rows) -> list[Any]:
        """Values of a field of `Rollout` that is plain or JSON, to be read: equal ones may be one object."""

    def take(self, rows: Rows) -> RolloutSource:
        """These rows, with nothing read of them yet."""


class KeptTraits(ABC):
    """Traits, kept from the first reading on."""

    @cached_property
    def traits(self) -> Traits:
        return self.read()

    @abstractmethod
    def read(self, sampled: bool = False) -> Traits:
        """Traits of all rows; `sampled`: see `extract`."""


@dataclass
class InMemoryRollouts(KeptTraits):
    """Objects in memory."""

    held: list[Rollout]

    @property
    def n(self) -> int:
        return len(self.held)

    def read(self, sampled: bool = False) -> Traits:
        starts = range(0, len(self.held), CHUNK)
        return join([extract(from_rollouts(self.held[a : a + CHUNK], a), sampled) for a in starts])

    def rollouts(self, rows: Rows) -> list[Rollout]:
        return [self.held[i] for i in rows]

    def turns(self, rows: Rows) -> list[tuple[Any, ...]]:
        return [self.held[i].turns for i in rows]

    def column(self, name: str, rows: Rows) -> list[Any]:
        return [getattr(self.held[i], name) for i in rows]

    def take(self, rows: Rows) -> RolloutSource:
        return InMemoryRollouts(self.rollouts(rows))


class StoredRollouts(KeptTraits):
    """A table of stored rollouts, one chunk a column."""

    def __init__(self, table: pa.Table) -> None:
        self._table, self.n = table, int(table.num_rows)

    def table(self) -> pa.Table:
        return self._table

    def asked(self, columns: list[str]) -> pa.Table:
        """Some columns of the table."""
        return self.table().select(columns)

    def read(self, sampled: bool = False) -> Traits:
        return extract(from_table(self.table()), sampled)

    def rollouts(self, rows: Rows) -> list[Rollout]:
        return [r for batch in self._rows(rows).to_batches() for r in decode(batch)]

    def turns(self, rows: Rows) -> list[tuple[Any, ...]]:
        return turns_at(self.table()["turns"], rows)

    def column(self, name: str, rows: Rows) -> list[Any]:
        found = self._rows(rows, [name])[name]
        if name not in JSON_COLUMNS:
            return found.to_pylist()
        # equal texts are decoded once: most rollouts of a run share their knobs and their policy
        each = found.combine_chunks().dictionary_encode()
        known = [json.loads(v) for v in each.dictionary.to_pylist()]
        none: dict[str, Any] = {}
        return [none if i is None else known[i] for i in each.indices.to_pylist()]

    def take(self, rows: Rows) -> RolloutSource:
        return StoredRollouts(self._rows(rows))

    def _rows(self, rows: Rows, columns: list[str] | None = None) -> pa.Table:
        import pyarrow as pa

        table = self.table() if columns is None else self.asked(columns)
        return table.take(pa.array(rows, pa.int64())).combine_chunks()


@dataclass
class JoinedRollouts:
    """Sources one after the other."""

    parts: list[RolloutSource] = field(default_factory=list)

    @property
    def n(self) -> int:
        return sum(p.n for p in self.parts)

    @cached_property
    def traits(self) -> Traits:
        return join([p.traits for p in self.parts])

    def rollouts(self, rows: Rows) -> list[Rollout]:
        return self._asked(rows, lambda p, mine: p.rollouts(mine))

    def turns(self, rows: Rows) -> list[tuple[Any, ...]]:
        return self._asked(rows, lambda p, mine: p.turns(mine))

    def column(self, name: str, rows: Rows) -> list[Any]:
        return self._asked(rows, lambda p, mine: p.column(name, mine))

    def take(self, rows: Rows) -> RolloutSource:
        # neighbouring rows of one part are taken at once; groupby keeps the order of the rows, which sorting would not
        runs = groupby(zip(*self._places(rows), strict=True), key=lambda x: x[0])
        return JoinedRollouts([self.parts[p].take([i for _, i in run]) for p, run in runs])

    def _places(self, rows: Rows) -> tuple[list[int], list[int]]:
        """(part, place in it) of each row."""
        starts = np.cumsum([0, *(p.n for p in self.parts)])
        at = np.asarray(rows, dtype=np.int64)
        # side="right": a row at a part's first place belongs to that part, also behind empty parts
        part = np.searchsorted(starts, at, side="right") - 1
        return part.tolist(), (at - starts[part]).tolist()

    def _asked(self, rows: Rows, ask: Callable[[RolloutSource, list[int]], list[T]]) -> list[T]:
        """Each part is asked once."""
        mine: dict[int, list[int]] = {}
        part, place = self._places(rows)
        for p, i in zip(part, place, strict=True):
            mine.setdefault(p, []).append(i)
        answers = {p: iter(ask(self.parts[p], places)) for p, places in mine.items()}
        return [next(answers[p]) for p in part]


def stored(batches: Iterable[pa.RecordBatch]) -> RolloutSource:
    """The source of record batches of `arrow_schema()`."""
    import pyarrow as pa

    pieces: list[list[pa.RecordBatch]] = [[]]
    size = 0
    for b in batches:
        if size >= PIECE:
            pieces.append([])
            size = 0
        pieces[-1].append(b)
        size += b.nbytes
    parts: list[RolloutSource] = [
        StoredRollouts(pa.Table.from_batches(p, arrow_schema()).combine_chunks()) for p in pieces
    ]
    return parts[0] if len(parts) == 1 else JoinedRollouts(parts)

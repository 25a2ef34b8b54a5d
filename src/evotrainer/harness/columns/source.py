"""Where the rollouts of a batch come from: a stored table, objects in memory, several sources one after the other.

Traits are read from all rows at once, and once. What else a row says is decoded when it is asked for: a column, the
turns, and last of all the whole rollout.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

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


class RolloutSource:
    """Rollouts in order; `rows` are places in it."""

    @property
    def n(self) -> int:
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of tables that it keeps in memory."""
        return 0

    @cached_property
    def traits(self) -> Traits:
        """Of all rows, read once."""
        return self.read()

    def read(self, sampled: bool = False) -> Traits:
        """Traits of all rows; `sampled`: see `extract`."""
        raise NotImplementedError

    def rollouts(self, rows: Sequence[int]) -> list[Rollout]:
        """Whole rollouts, in the order asked for."""
        raise NotImplementedError

    def turns(self, rows: Sequence[int]) -> list[tuple[Any, ...]]:
        """Turns, or what reads like them."""
        raise NotImplementedError

    def column(self, name: str, rows: Sequence[int]) -> list[Any]:
        """Values of a field of `Rollout` that is plain or JSON."""
        raise NotImplementedError

    def take(self, rows: Sequence[int]) -> RolloutSource:
        """These rows, with nothing read of them yet."""
        raise NotImplementedError


@dataclass
class InMemoryRollouts(RolloutSource):
    """Objects in memory."""

    held: list[Rollout]

    @property
    def n(self) -> int:
        return len(self.held)

    def read(self, sampled: bool = False) -> Traits:
        starts = range(0, len(self.held), CHUNK)
        return join([extract(from_rollouts(self.held[a : a + CHUNK], a), sampled) for a in starts])

    def rollouts(self, rows: Sequence[int]) -> list[Rollout]:
        return [self.held[i] for i in rows]

    def turns(self, rows: Sequence[int]) -> list[tuple[Any, ...]]:
        return [self.held[i].turns for i in rows]

    def column(self, name: str, rows: Sequence[int]) -> list[Any]:
        return [getattr(self.held[i], name) for i in rows]

    def take(self, rows: Sequence[int]) -> RolloutSource:
        return InMemoryRollouts(self.rollouts(rows))


@dataclass
class Stored(RolloutSource):
    """A table of stored rollouts, one chunk a column."""

    table: pa.Table
    _turns: dict[int, tuple[Any, ...]] = field(default_factory=dict, repr=False)

    @property
    def n(self) -> int:
        return int(self.table.num_rows)

    @property
    def nbytes(self) -> int:
        return int(self.table.nbytes)

    def read(self, sampled: bool = False) -> Traits:
        return extract(from_table(self.table), sampled)

    def rollouts(self, rows: Sequence[int]) -> list[Rollout]:
        return [r for batch in self._rows(rows).to_batches() for r in decode(batch)]

    def turns(self, rows: Sequence[int]) -> list[tuple[Any, ...]]:
        new = [i for i in dict.fromkeys(rows) if i not in self._turns]
        self._turns.update(zip(new, turns_at(self.table["turns"], new), strict=True))
        return [self._turns[i] for i in rows]

    def column(self, name: str, rows: Sequence[int]) -> list[Any]:
        values = self._rows(rows, [name])[name].to_pylist()
        return [{} if v is None else json.loads(v) for v in values] if name in JSON_COLUMNS else values

    def take(self, rows: Sequence[int]) -> RolloutSource:
        return Stored(self._rows(rows))

    def _rows(self, rows: Sequence[int], columns: list[str] | None = None) -> pa.Table:
        import pyarrow as pa

        table = self.table if columns is None else self.table.select(columns)
        return table.take(pa.array(rows, pa.int64())).combine_chunks()


@dataclass
class JoinedRollouts(RolloutSource):
    """Sources one after the other."""

    parts: list[RolloutSource] = field(default_factory=list)

    @property
    def n(self) -> int:
        return sum(p.n for p in self.parts)

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self.parts)

    @cached_property
    def traits(self) -> Traits:
        return join([p.traits for p in self.parts])

    def read(self, sampled: bool = False) -> Traits:
        return join([p.read(sampled) for p in self.parts])

    def rollouts(self, rows: Sequence[int]) -> list[Rollout]:
        return self._asked(rows, lambda p, mine: p.rollouts(mine))

    def turns(self, rows: Sequence[int]) -> list[tuple[Any, ...]]:
        return self._asked(rows, lambda p, mine: p.turns(mine))

    def column(self, name: str, rows: Sequence[int]) -> list[Any]:
        return self._asked(rows, lambda p, mine: p.column(name, mine))

    def take(self, rows: Sequence[int]) -> RolloutSource:
        runs = groupby(zip(*self._places(rows), strict=True), key=lambda x: x[0])
        return JoinedRollouts([self.parts[p].take([i for _, i in run]) for p, run in runs])

    def _places(self, rows: Sequence[int]) -> tuple[list[int], list[int]]:
        """(part, place in it) of each row."""
        starts = np.cumsum([0, *(p.n for p in self.parts)])
        at = np.asarray(rows, dtype=np.int64)
        part = np.searchsorted(starts, at, side="right") - 1
        return part.tolist(), (at - starts[part]).tolist()

    def _asked(self, rows: Sequence[int], ask: Callable[[RolloutSource, list[int]], list[T]]) -> list[T]:
        """Each part is asked once; answers in the order of the rows."""
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
    parts: list[RolloutSource] = [Stored(pa.Table.from_batches(p, arrow_schema()).combine_chunks()) for p in pieces]
    return parts[0] if len(parts) == 1 else JoinedRollouts(parts)

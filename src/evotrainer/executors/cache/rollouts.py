"""Rollouts between a run and the cache: by split, with the names of the run that they are in.

Rollouts name their run and branch, and so do their groups, policies and ids (`records.rollout.rollout_id`). In an entry
they have the names of the run that made them; a run that takes them gets those that it would have given itself.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.errors import IntegrityError
from evotrainer.records.arrow_schema import arrow_schema
from evotrainer.records.durable import sha256_file
from evotrainer.records.reading import open_part
from evotrainer.records.rollout import greedy_split, rollout_id
from evotrainer.records.store import parquet_options
from evotrainer.records.text import cause

if TYPE_CHECKING:
    import pyarrow as pa

    from evotrainer.records.sealed import Key

VARIANT = re.compile(r"(#.*?)?(?:\+\d+)?", re.S)
"""What follows the task in a group's name: the variant of an evaluation, which is in ids, and the number of a draw."""
Names = tuple[str, str]
"""Run and branch."""


def by_split(folder: Path, parts: Sequence[str], checksums: Sequence[str]) -> dict[str, pa.Table]:
    """The rollouts of a trial's parts by split, as stored. IntegrityError where a part is not what was recorded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    tables = []
    for part, sha in zip(parts, checksums, strict=True):
        if sha256_file(folder / part) != sha:
            raise IntegrityError(f"{folder / part} is not what its trial stored")
        with open_part(folder / part) as file:
            tables.append(file.read(use_threads=False))
    if not tables:
        return {}
    whole = pa.concat_tables(tables)
    splits = dict.fromkeys(whole.column("split").to_pylist())
    return {str(s): whole.filter(pc.equal(whole["split"], s)) for s in splits}


def with_greedy(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Each split's rollouts followed by those of its greedy reading: they are one evaluation."""
    import pyarrow as pa

    second = {greedy_split(s) for s in tables}
    return {
        s: pa.concat_tables([t, *(tables[g] for g in (greedy_split(s),) if g in tables)])
        for s, t in tables.items()
        if s not in second
    }


def lost_any(table: pa.Table) -> bool:
    """Whether a fault of the infrastructure took part: then it is no function of its specification alone."""
    return bool(table.column("error_kind").null_count < table.num_rows)


def renamed(table: pa.Table, old: Names, new: Names) -> pa.Table | None:
    """The rollouts under other names; None where their names or ids are not made as ours are."""
    import pyarrow as pa

    names = ("id", "run", "branch", "policy", "group", "task", "seed", "step", "k")
    out: dict[str, list[str]] = {"id": [], "policy": [], "group": []}
    for id, run, branch, policy, group, task, seed, step, k in zip(
        *(table.column(n).to_pylist() for n in names), strict=True
    ):
        head, rest = f"{old[1]}/", str(group).removeprefix(f"{policy}/{task}")
        variant = VARIANT.fullmatch(rest)
        if (run, branch) != old or not str(policy).startswith(head) or rest == group or variant is None:
            return None
        key = f"{task}{variant[1] or ''}"
        if id != rollout_id(*old, seed, step, key, k):
            return None
        out["id"].append(rollout_id(*new, seed, step, key, k))
        out["policy"].append(f"{new[1]}/{policy.removeprefix(head)}")
        out["group"].append(f"{new[1]}/{group.removeprefix(head)}")
    columns = out | {"run": [new[0]] * table.num_rows, "branch": [new[1]] * table.num_rows}
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(values, pa.string()))
    return table


def to_bytes(table: pa.Table) -> bytes:
    """Rollouts as a Parquet file."""
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(table.combine_chunks(), out, **parquet_options())
    return out.getvalue()


def from_bytes(data: bytes) -> pa.Table:
    """What `to_bytes` wrote; IntegrityError where it is something else."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(data), use_threads=False)
    except pa.ArrowException as e:
        raise IntegrityError(f"rollouts of a cache entry cannot be read ({cause(e)})") from e
    if not table.schema.equals(arrow_schema()):
        raise IntegrityError("rollouts of a cache entry have other columns than this version's")
    return table


def store_all(folder: Path, tables: Iterable[pa.Table], key: Key | None) -> tuple[tuple[str, str], ...]:
    """A finished trial's store of these rollouts, encrypted where a key is given; (name, SHA-256) of its parts."""
    from evotrainer.records.store import RolloutStore

    with RolloutStore(folder, key=key) as store:
        for table in tables:
            store.adopt(table)
        return tuple((p.path.name, p.sha256) for p in store.seal())

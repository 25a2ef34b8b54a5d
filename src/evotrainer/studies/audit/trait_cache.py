"""Caches traits that were read once, row group by row group."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from evotrainer.errors import StoreError
from evotrainer.harness.columns.scan import can_compile
from evotrainer.harness.columns.traits import VERSION, Traits, join, load, save
from evotrainer.importers.base import Skipped
from evotrainer.records.output import Progress
from evotrainer.studies.audit.units import SAMPLED_FROM, OpenedSource, PartRowGroup
from evotrainer.studies.audit.worker import WorkerError, Workers, serve

if TYPE_CHECKING:
    from evotrainer.harness.columns.source import InMemoryRollouts
    from evotrainer.records.rollout import Rollout

PARALLEL_FROM = 4
"""Unread row groups from which reading is spread over processes."""
TEMPORARY = "evotrainer-audit-"
"""Beginning of the name of a folder that goes with the audit: nothing is kept for another one."""


Tell = Callable[[int, int], None]
"""Is called with how many row groups are done, and of how many."""


class CacheError(StoreError):
    """The cache cannot be written."""


def read_traits(whole: OpenedSource, cache: Path, workers: int | None = None, say: Progress | None = None) -> Traits:
    """Traits of all units, in order: kept ones as they are, the rest read now, side by side where it is much."""
    sampled = whole.n >= SAMPLED_FROM
    todo = [u for u in whole.parts if isinstance(u, PartRowGroup) and not kept_path(u, sampled, cache).is_file()]
    cores = workers or len(os.sched_getaffinity(0))
    # long reading says why it is long
    slow = "" if can_compile() else " (14 times as fast with numba: pip install -e '.[audit]')"
    tell = partial(say or (lambda what, done, of: None), f"reading rollouts{slow}")
    if len(todo) >= PARALLEL_FROM and cores > 1:
        _keep_all(todo, sampled, cache, min(cores, len(todo)), tell)
    else:
        for i, group in enumerate(todo):
            tell(i, len(todo))
            keep_or_skip(group, sampled, cache)
    parts: list[Traits] = []
    for stored, units in groupby(list(whole.parts), lambda u: isinstance(u, PartRowGroup)):
        if not stored:
            parts += _of_memory([r for u in units for r in cast("InMemoryRollouts", u).held], sampled, cache)
            continue
        for group in cast("Iterator[PartRowGroup]", units):
            if (found := _kept(group, sampled, cache)) is not None:
                parts.append(found)
            else:
                whole.parts.remove(group)
                whole.skipped.append(
                    Skipped(f"{group.part} row group {group.index}", "damaged: its rows cannot be read")
                )
    return join(parts)


def _of_memory(held: list[Rollout], sampled: bool, cache: Path) -> list[Traits]:
    """Traits of rollouts that lie in memory: those of small files, which are read anew each time, are kept by what the
    rollouts hold. At the precision in which they are kept, whether they are or not."""
    from evotrainer.harness.columns.source import CHUNK, InMemoryRollouts

    out = []
    for block in (held[a : a + CHUNK] for a in range(0, len(held), CHUNK)):
        path = None
        if not cache.name.startswith(TEMPORARY):
            content = f"{VERSION}/{int(sampled)}/".encode() + pickle.dumps(block, protocol=5)
            key = hashlib.blake2b(content, digest_size=16).hexdigest()
            path = cache / "traits" / key[:2] / f"{key}.npz"
        if path is None or (found := load(path)) is None:
            read = InMemoryRollouts(block).read(sampled)
            data = save(read)
            if path is not None:
                _write(path, data, cache)
            found = load(io.BytesIO(data)) or read
        out.append(found)
    return out


def kept_path(unit: PartRowGroup, sampled: bool, cache: Path) -> Path:
    """Where the traits of a row group are kept."""
    key = hashlib.blake2b(f"{unit.key}/{VERSION}/{int(sampled)}".encode(), digest_size=16).hexdigest()
    return cache / "traits" / key[:2] / f"{key}.npz"


def keep_or_skip(unit: PartRowGroup, sampled: bool, cache: Path) -> None:
    """Read a row group's traits and keep them. A damaged one is left out (and named afterwards), a full or read-only
    cache raises CacheError."""
    try:
        _write(kept_path(unit, sampled, cache), save(unit.read(sampled)), cache)
    except CacheError:
        raise
    except Exception:  # whatever damaged data makes a decoder raise
        return


def _kept(unit: PartRowGroup, sampled: bool, cache: Path) -> Traits | None:
    """Kept traits of a row group; read once more where what was kept is damaged; None where the row group is."""
    path = kept_path(unit, sampled, cache)
    if (found := load(path)) is None and path.is_file():
        path.unlink(missing_ok=True)
        keep_or_skip(unit, sampled, cache)
        found = load(path)
    return found


def _write(path: Path, data: bytes, cache: Path) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as e:
        with suppress(OSError):
            temporary.unlink()
        raise CacheError(f"cannot keep traits in {cache}: {e.strerror}; free space, or give another --cache") from e


def _keep_all(todo: Sequence[PartRowGroup], sampled: bool, cache: Path, workers: int, tell: Tell) -> None:
    """Spread row groups over worker processes;
    what one leaves undone (killed, out of memory) is read here afterwards."""

    def have_kept(u: PartRowGroup) -> None:
        try:
            group = [str(u.part), u.index, u.n, u.key]
            processes.ask({"group": group, "sampled": sampled, "cache": str(cache)})
        except WorkerError as e:
            if e.code == StoreError.exit_code:
                raise CacheError(str(e)) from None

    with Workers("evotrainer.studies.audit.trait_cache") as processes, ThreadPoolExecutor(workers) as pool:
        for i, _ in enumerate(pool.map(have_kept, todo), 1):
            tell(i, len(todo))
    for unit in todo:
        if not kept_path(unit, sampled, cache).is_file():
            keep_or_skip(unit, sampled, cache)


def keep_job(job: dict[str, Any]) -> dict[str, Any]:
    """In a worker: keep the traits of one row group."""
    part, index, n, key = job["group"]
    keep_or_skip(PartRowGroup(Path(part), index, n, key), job["sampled"], Path(job["cache"]))
    return {}


if __name__ == "__main__":
    raise SystemExit(serve(keep_job))

"""Our own rollouts: a store folder, a single sealed part, or a run folder (all of its training and search rollouts).

Rollouts come as they were stored, ids included. The splits held back for certification (`sealed`) are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evotrainer.errors import StoreError
from evotrainer.importers.base import LogFormat, Skipped, Source, is_run, stores_of
from evotrainer.records.arrow_schema import decode
from evotrainer.records.frames import read_tail
from evotrainer.records.reading import TAIL, is_store, open_part, stored_parts
from evotrainer.records.rollout import Rollout
from evotrainer.records.sealed import SealedSplits
from evotrainer.records.text import cause


class Store(LogFormat):
    """The importer of our own stores."""

    name = "store"
    about = "EvoTrainer's own rollouts: a run folder, a store folder (part-*.parquet, tail.log), or one part"
    asked = 0
    own_ids = True

    def recognises(self, source: Source) -> bool:
        """A run folder, a store folder, or a Parquet file of our schema."""
        path = source.path
        if path.is_dir():
            return is_store(path) or is_run(path)
        if path.suffix != ".parquet" or source.head[:4] != b"PAR1":
            return False
        try:
            with open_part(path):
                return True
        except StoreError:
            return False

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        """Every rollout once; a damaged part or frame is one `Skipped`. StoreError for a sealed split."""
        # also from inside a run: held-out rollouts must not leak into an audit by naming their folder
        if any(map(SealedSplits.hold_back, (path, path.resolve().parent))):
            raise StoreError(f"{path} is a sealed split; its rollouts are read by certification only")
        seen: set[str] = set()
        if path.is_file():
            yield from _part(path, seen)
            return
        folders = [path] if is_store(path) else stores_of(path)
        for folder in folders:
            yield from _folder(folder, seen)
        if not folders:
            yield Skipped(str(path), "the run has no rollouts yet")


def _folder(folder: Path, seen: set[str]) -> Iterator[Rollout | Skipped]:
    try:
        tail = read_tail(folder / TAIL)  # before the parts are listed: a seal in between shows rows twice, never not
    except (OSError, StoreError) as e:
        yield Skipped(str(folder / TAIL), str(e))
        tail = None
    for part in stored_parts(folder):
        yield from _part(part, seen)
    if tail is None:
        return
    try:
        for batch in tail.batches():
            yield from _fresh(decode(batch), seen)
    except Exception as e:
        yield Skipped(str(folder / TAIL), f"damaged: {type(e).__name__}: {cause(e)}")
    if complaint := tail.complaint():
        yield Skipped(str(folder / TAIL), complaint)


def _part(path: Path, seen: set[str]) -> Iterator[Rollout | Skipped]:
    try:
        file = open_part(path)
    except StoreError as e:
        yield Skipped(str(path), str(e))
        return
    with file:
        for g in range(file.num_row_groups):
            try:
                for batch in file.iter_batches(batch_size=1024, row_groups=[g], use_threads=False):
                    yield from _fresh(decode(batch), seen)
            except Exception as e:
                reason = f"damaged: {cause(e)}"
                yield Skipped(f"{path} row group {g}", reason)


def _fresh(rollouts: Iterator[Rollout] | list[Rollout], seen: set[str]) -> Iterator[Rollout]:
    for r in rollouts:
        # a seal that is under way shows rows in the tail and in the new part
        if r.id not in seen:
            seen.add(r.id)
            yield r


IMPORTER = Store()

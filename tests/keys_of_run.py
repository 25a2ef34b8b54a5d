"""The key of a run that has not closed, as its own process holds it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from evotrainer.records.sealed import Key, SealedSplits


def key_of_run(folder: Path) -> Key:
    """Of what is encrypted up to the run's first end; this process does not hold it afterwards."""
    sealed = SealedSplits.begin(folder, Path(os.environ["EVOTRAINER_KEYS"]))
    sealed.release()
    assert sealed.key is not None
    return sealed.key


@contextlib.contextmanager
def held(folder: Path) -> Iterator[Key]:
    """Inside, this process reads what the run has encrypted."""
    key = key_of_run(folder).hold()
    try:
        yield key
    finally:
        key.release()

"""The key of a run that has not closed, as its own process holds it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from evotrainer.records.draw import stored_seed_key
from evotrainer.records.encryption import DataKey, register_key
from evotrainer.records.revealed import unlearn
from evotrainer.records.run_keys import find_keys


def key_of_run(folder: Path) -> DataKey:
    """Of what is encrypted up to the run's first end."""
    return find_keys(Path(os.environ["EVOTRAINER_KEYS"]), stored_seed_key(folder)).nth(1)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[DataKey]:
    """Inside, this process reads what the run has encrypted."""
    key = register_key(key_of_run(folder))
    try:
        yield key
    finally:
        unlearn(key)

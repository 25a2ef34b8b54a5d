"""Reading encrypted files of a run folder: with a key that this process holds, or one that the run's end revealed."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from evotrainer.errors import EncryptedError, StoreError
from evotrainer.records.encryption import DataKey, decrypt, forget_key, has_key, key_of
from evotrainer.records.regular_file import read_bytes

PURPOSE = "rollouts"
SUFFIX = ".enc"
"""Of files that hold one encrypted message."""


def decrypted_message(message: bytes, run_dir: Path, purpose: str = PURPOSE) -> bytes:
    """What a message of a run folder says; EncryptedError before the run's end."""
    if not has_key(key_of(message)):
        learn(run_dir)
    return decrypt(message, purpose)


def learn(run_dir: Path) -> None:
    """Take in the keys that a run's ends revealed; a folder without a readable ledger reveals none."""
    from evotrainer.records.ledger import Ledger

    if not (run_dir / "ledger.db").is_file():
        return
    try:
        with Ledger.open(run_dir / "ledger.db", readonly=True) as ledger:
            ledger.events()  # a ledger takes in what it reveals
    except StoreError:
        return


def unlearn(key: DataKey) -> None:
    """Forget a key, and what was read with it."""
    forget_key(key)
    _content.cache_clear()


def part_source(path: Path) -> Path | bytes:
    """A part as Parquet: its path, or the content of an encrypted one."""
    if path.suffix != SUFFIX:
        return path
    stat = path.stat()
    return _content(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=2)
def _content(path: Path, size: int, mtime_ns: int) -> bytes:
    try:
        return decrypted_message(read_bytes(path), path.absolute().parents[2])
    except EncryptedError as e:
        raise EncryptedError(f"{path}: {e}") from None

"""How a trial's process gets the key of gate and cert: by a pipe or socket, which no other process can read.

Command lines and environments stand in `/proc` for every process of the user; files are what the key protects.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from evotrainer.errors import StoreError
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.sealed import Key

WITH_KEY = "key"
"""Third argument of a trial's process that is handed a key on standard input."""


def passed_key(spec: TrialSpec) -> bytes:
    """The key that a trial's process is handed; empty: it needs none. EncryptedError where this process has it not."""
    return Key.held(spec.key).key if spec.key else b""


def received(argv: Sequence[str]) -> bytes:
    """The key on standard input, where the arguments say that one is there."""
    return sys.stdin.buffer.read(32) if argv[2:3] == [WITH_KEY] else b""


def asked(spec: TrialSpec, key: Key | None) -> Key | None:
    """The key to encrypt with; StoreError where the specification asks for another one than the trial was handed:
    nothing of gate and cert may be written in clear then."""
    if spec.key and (key is None or key.id != spec.key):
        raise StoreError(f"trial {spec.trial} was not handed the key {spec.key}; resume its run")
    return key if spec.key else None

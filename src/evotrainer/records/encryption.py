"""Encryption of what only the judge may read: AES-256-GCM under a key that the run's process holds until the end.

A message is `EVOK`, 8 bytes that name the key, 12 random bytes, ciphertext with its tag. Keys that this process holds
or has read from a ledger are known by name; with any other, reading ends in an EncryptedError.
"""

from __future__ import annotations

import hashlib
import os
from functools import cached_property
from typing import TYPE_CHECKING

from evotrainer.errors import EncryptedError, IntegrityError, MissingDependencyError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"EVOK"
NONCE = 12
HEAD = len(MAGIC) + 8 + NONCE
MESSAGE_BYTES = (1 << 31) - 1 - 16
"""Longest message that AES-GCM of the library takes."""


class DataKey:
    """A key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise IntegrityError(f"a key has 32 bytes, not {len(key)}; restore it from a copy")
        self.key = key

    @cached_property
    def sha256(self) -> str:
        """64 hex: commits to the key and tells nothing of it."""
        return hashlib.sha256(self.key).hexdigest()

    @property
    def id(self) -> str:
        """16 hex digits that name it."""
        return self.sha256[:16]

    @cached_property
    def cipher(self) -> AESGCM:
        """MissingDependencyError without the library."""
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise MissingDependencyError(
                "gate and cert are encrypted with the library cryptography; pip install cryptography"
            ) from None
        return AESGCM(self.key)

    def encrypt(self, data: bytes, purpose: str) -> bytes:
        """The message that `decrypt` opens for the same purpose."""
        if len(data) > MESSAGE_BYTES:
            raise IntegrityError(f"{len(data):,} bytes are too many for one encrypted message ({purpose})")
        nonce = os.urandom(NONCE)
        return MAGIC + bytes.fromhex(self.id) + nonce + self.cipher.encrypt(nonce, data, purpose.encode())

    def __repr__(self) -> str:  # never the key itself, in no traceback and no log
        return f"DataKey({self.id})"


_known: dict[str, DataKey] = {}


def register_key(key: DataKey) -> DataKey:
    """From here on this process opens what was encrypted with it."""
    return _known.setdefault(key.id, key)


def register_revealed_key(key: str) -> bool:
    """A key as an event reveals it; False where it is none."""
    try:
        register_key(DataKey(bytes.fromhex(key)))
    except (ValueError, IntegrityError):
        return False
    return True


def forget_key(key: DataKey) -> None:
    """And no more."""
    _known.pop(key.id, None)


def has_key(id: str) -> bool:
    return id in _known


def key_named(id: str) -> DataKey:
    """The key of this name; EncryptedError where this process does not have it."""
    if id not in _known:
        raise EncryptedError(
            f"gate and cert are encrypted until the run closes (key {id}); its last event reveals the key"
        )
    return _known[id]


def is_encrypted(message: bytes) -> bool:
    return message.startswith(MAGIC)


def key_of(message: bytes) -> str:
    """Name of a message's key; IntegrityError where it is no message."""
    if not is_encrypted(message) or len(message) < HEAD + 16:
        raise IntegrityError("no encrypted message, or a cut one; restore a copy")
    return message[len(MAGIC) : len(MAGIC) + 8].hex()


def decrypt(message: bytes, purpose: str) -> bytes:
    """What was encrypted for this purpose; EncryptedError without the key, IntegrityError where it was changed."""
    key = key_named(key_of(message))
    from cryptography.exceptions import InvalidTag

    try:
        return key.cipher.decrypt(message[HEAD - NONCE : HEAD], message[HEAD:], purpose.encode())
    except InvalidTag:
        raise IntegrityError(f"encrypted {purpose} were changed after they were written; restore a copy") from None

"""Scores of single tasks, encrypted in events and files while a run goes on: means stay readable."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable

from evotrainer.errors import EncryptedError
from evotrainer.records.encryption import DataKey, decrypt, has_key, key_of
from evotrainer.records.events import SplitScore, TrialFinished

SPLITS = ("gate", "cert")
"""Splits that only the judge may read."""
PER_TASK = ("per_task", "proxy_per_task", "greedy_per_task")
PURPOSE = "scores"
NAMED = 64
"""Characters of a message that hold the name of its key."""


def encrypted(s: SplitScore, key: DataKey | None) -> SplitScore:
    """A score as it is stored: of gate and cert without single tasks, which `SplitScore.encrypted` holds."""
    if key is None or s.split not in SPLITS or s.encrypted:
        return s
    text = json.dumps({name: getattr(s, name) for name in PER_TASK}, separators=(",", ":"), allow_nan=False)
    message = base64.b64encode(key.encrypt(text.encode(), PURPOSE)).decode()
    return s.model_copy(update={**{name: {} for name in PER_TASK}, "encrypted": message})


def decrypted(s: SplitScore) -> SplitScore:
    """A score as it was before, where this process has the key; IntegrityError where the message was changed."""
    if not s.encrypted or not has_key(key_of(base64.b64decode(s.encrypted[:NAMED]))):
        return s
    return s.model_copy(update={**json.loads(decrypt(base64.b64decode(s.encrypted), PURPOSE)), "encrypted": ""})


def readable(s: SplitScore, trial: str) -> SplitScore:
    """The score; EncryptedError where its single tasks cannot be read here."""
    if s.encrypted:
        raise EncryptedError(f"trial {trial}: {s.split} scores of single tasks are encrypted until the run closes")
    return s


def stored(t: TrialFinished, key: DataKey | None) -> TrialFinished:
    """A result as it is stored under a key."""
    return t.model_copy(update={"scores": tuple(encrypted(s, key) for s in t.scores)}) if key else t


def opened(t: TrialFinished) -> TrialFinished:
    """A result with the scores that this process can read."""
    return t.model_copy(update={"scores": tuple(map(decrypted, t.scores))}) if any_locked(t.scores) else t


def any_locked(scores: Iterable[SplitScore]) -> bool:
    """Does one have single tasks that were not decrypted?"""
    return any(s.encrypted for s in scores)

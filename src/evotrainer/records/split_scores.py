"""Scores of single tasks, encrypted in events and files while a run goes on: means stay readable."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable

from evotrainer.errors import EncryptedError
from evotrainer.records.encryption import DataKey, decrypt, is_known, key_of
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
    message = key.encrypt(text.encode(), PURPOSE)
    return _bare(s).model_copy(update={"encrypted": base64.b64encode(message).decode()})


def _bare(s: SplitScore) -> SplitScore:
    return s.model_copy(update={name: {} for name in PER_TASK})


def decrypted(s: SplitScore) -> SplitScore:
    """A score with its single tasks, where this process has the key; IntegrityError where the message was changed."""
    if not locked(s) or not is_known(key_of(base64.b64decode(s.encrypted[:NAMED]))):
        return s
    return s.model_copy(update=json.loads(decrypt(base64.b64decode(s.encrypted), PURPOSE)))


def locked(s: SplitScore) -> bool:
    """Does it have single tasks that cannot be read here?"""
    return bool(s.encrypted) and (
        (s.score is not None and not s.per_task) or (s.greedy is not None and not s.greedy_per_task)
    )


def readable(s: SplitScore, trial: str) -> SplitScore:
    """The score; EncryptedError where its single tasks cannot be read here."""
    if locked(s):
        raise EncryptedError(f"trial {trial}: {s.split} scores of single tasks are encrypted until the run closes")
    return s


def stored(t: TrialFinished, key: DataKey | None = None) -> TrialFinished:
    """A result as it is stored; scores that were read stay as they were encrypted."""
    if not any(s.encrypted or key for s in t.scores):
        return t
    scores = tuple(_bare(s) if s.encrypted else encrypted(s, key) for s in t.scores)
    return t.model_copy(update={"scores": scores})


def opened(t: TrialFinished) -> TrialFinished:
    """A result with the scores that this process can read."""
    return t.model_copy(update={"scores": tuple(map(decrypted, t.scores))}) if any_locked(t.scores) else t


def any_locked(scores: Iterable[SplitScore]) -> bool:
    return any(map(locked, scores))

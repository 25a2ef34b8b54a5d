"""Where the rollouts of a run lie that somebody asks for by split, branch and trial."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evotrainer.errors import ConfigError, EncryptedError
from evotrainer.records.ledger import Event
from evotrainer.records.rollout import GREEDY
from evotrainer.records.sealed import SealedSplits

OPEN = ("train", "search")
"""Splits that may be read while the run goes on."""


def stores_of(folder: Path, events: Sequence[Event], split: str, branch: str | None, trial: str | None) -> list[Path]:
    """Store folders of the trials in the order in which they began; those of an audit, which close a shortcut, only
    where they are named.

    ConfigError for a split, branch or trial that is not there; EncryptedError for gate and cert before the run's close.
    """
    plain = split.removesuffix(GREEDY)
    if plain not in (*OPEN, *SealedSplits.SPLITS):
        raise ConfigError(
            f"no split {split!r}; there are {', '.join((*OPEN, *SealedSplits.SPLITS))}, each with {GREEDY} as well"
        )
    if SealedSplits.covers(split) and not any(e.kind == "closed" for e in events):
        raise EncryptedError(
            f"{folder}: {plain} is sealed until the run closes; read train and search, or end it: "
            f"evotrainer resume {folder}"
        )
    began = [e.body for e in events if e.kind == "intended"]
    for what, asked, known in (
        ("branch", branch, [t.branch for t in began]),
        ("trial", trial, [t.trial for t in began]),
    ):
        if asked is not None and asked not in known:
            raise ConfigError(f"no {what} {asked!r} was tried; there are: {', '.join(dict.fromkeys(known)) or 'none'}")
    wanted = [
        t.trial for t in began if branch in (None, t.branch) and (t.trial == trial if trial else t.purpose != "audit")
    ]
    kind = SealedSplits.STORES[SealedSplits.covers(split)]
    return [p for p in (folder / kind / t for t in dict.fromkeys(wanted)) if p.is_dir()]

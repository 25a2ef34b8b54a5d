"""`[environment]` with name = "verifiers:ID"."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from evotrainer.envs.base import SPLITS
from evotrainer.errors import TaskSetError
from evotrainer.records.frozen import Frozen

SCHEME = "verifiers:"
SHARES = {"train": 0.7, "search": 0.1, "gate": 0.1, "cert": 0.1}
TOTAL = "reward"
"""Component: the rewards by their weights, as verifiers trains on them."""


class VerifiersConfig(Frozen):
    """`[environment]` with name = "verifiers:ID"."""

    name: str
    path: str = ""
    """Folder in which the environment's package lies, where it is not installed."""
    taskset: dict[str, Any] = {}
    """The task set's own options (verifiers: `--env.taskset.*`)."""
    tasks: int = Field(2000, ge=10)
    """Tasks that are read at most."""
    splits: dict[str, float] = SHARES
    """Shares of train, search, gate and cert; which task goes where follows from a hash of its key."""
    truth: str | None = None
    """Reward that says what is right; None: the one of the largest weight, the first of several."""
    correct_at: float = 1.0
    """Value of `truth` from which an attempt counts as correct."""
    timeout_s: float = Field(60.0, gt=0)
    """Seconds that the rewards of one attempt may take; a task's own limit comes before it."""
    harness: str | None = None
    """Plays episodes: "chat" (verifiers' chat loop), "own" (the task set's), or a harness of verifiers by its id. None:
    one turn, scored in this process."""
    env: dict[str, Any] = {}
    """verifiers' own options of an episode (its `--env.*`), where a harness plays."""
    rewards: dict[str, float] = {}
    """Rewards that episodes give, and their weights; none: those of a first episode."""
    at_once: int = Field(32, ge=1)
    """Episodes that are in progress together."""
    turn_s: float = Field(120.0, gt=0)
    """Seconds that a harness may take between an answer and its next question, or its end."""
    start_s: float = Field(300.0, gt=0)
    """Seconds that verifiers may take to load the tasks."""


def split_up(shares: Mapping[str, float], keys: Iterable[str]) -> dict[str, list[str]]:
    """Keys of tasks by split, in an order that follows from their hashes; TaskSetError for shares that are none."""
    if set(shares) - set(SPLITS) or abs(sum(shares.values()) - 1) > 1e-6 or min(shares.values()) < 0:
        raise TaskSetError(f"environment.splits: give shares of {', '.join(SPLITS)} that add up to 1")
    order = sorted(keys, key=lambda k: hashlib.blake2b(f"evotrainer:{k}".encode()).digest())
    out, begin, share = dict[str, list[str]](), 0, 0.0
    for split in SPLITS:
        share += shares.get(split, 0.0)
        end = round(share * len(order))
        out[split] = order[begin:end]
        begin = end
    return out


def check_folder(path: str) -> None:
    """TaskSetError where it is none."""
    if path and not Path(path).is_dir():
        raise TaskSetError(f"environment.path {path} is no folder; name the one that holds the environment's package")

"""`[environment]` with name = "verifiers:ID"."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from evotrainer.envs.base import SPLITS, EnvironmentBase, Episode, Score, Task
from evotrainer.errors import TaskSetError
from evotrainer.records.frozen import Frozen
from evotrainer.records.rollout import Outcome

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


class OfVerifiers(EnvironmentBase):
    """What both ways to play a task set share. A component is a reward of its tasks by name, not weighted; `reward` is
    their weighted sum."""

    _weights: dict[str, float]
    """Reward -> its weight."""

    def __init__(self, config: VerifiersConfig) -> None:
        self.name, self.config = config.name, config
        self.id = config.name.removeprefix(SCHEME)

    def _split(self, own: Mapping[str, tuple[str, dict[str, Any]]]) -> None:
        """`own`: key -> prompt and data of a task."""
        self._tasks = {
            split: tuple(Task(f"{split}-{k[:16]}", split, *own[k], {"taskset": self.id}) for k in keys)
            for split, keys in split_up(self.config.splits, own).items()
        }

    def _pay(self, weights: dict[str, float], about: Mapping[str, str]) -> None:
        """`about`: reward -> its docstring."""
        first = {n: about.get(n, "").strip().partition("\n")[0] or n for n in weights}
        self._weights = weights
        self.components = {n: f"{first[n]}; weight {w:g}" for n, w in weights.items()} | {
            TOTAL: "the rewards by their weights"
        }
        self.truth = self.config.truth or max(weights, key=lambda n: weights[n])
        if self.truth not in weights:
            raise TaskSetError(f"environment {self.name}: truth {self.truth!r} is none of {', '.join(weights)}")
        self.outcome_components: Sequence[str] = (self.truth, TOTAL)

    def _hash_of(self, name: str, *more: Any) -> str:
        """`more`: what else decides the scores."""
        ids = [[t.id for t in self._tasks[s]] for s in SPLITS]
        text = json.dumps([name, self.version, self._weights, ids, *more], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _faulty(self, kind: str, why: str) -> Score:
        return Score(dict.fromkeys(self.components), "unknown", error=why, error_kind=kind)

    def _scored_by(
        self, values: dict[str, float | None], total: float | None, e: Episode, metrics: Mapping[str, Any], **more: Any
    ) -> Score:
        true = values[self.truth]
        outcome: Outcome = "unknown" if true is None else "correct" if true >= self.config.correct_at else "incorrect"
        detail = {**e.task.tags, **{k: v for k, v in metrics.items() if v is not None}, **more}
        return Score({**values, TOTAL: total}, outcome, detail=detail)

    def describe(self) -> dict[str, Any]:
        from importlib.metadata import version

        return {**super().describe(), "verifiers": version("verifiers")}


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

"""The evidence contract, schema v1: one `Rollout` is one recorded attempt at one task.

Everything but task id, text and reward is optional: the harness degrades and says what it could not see.
An infrastructure fault is an outcome of its own (`error_kind`), never reward 0.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal

SCHEMA_VERSION = 1

Role = Literal["system", "user", "assistant", "tool"]
Outcome = Literal["correct", "incorrect", "unknown"]
Finish = Literal["stop", "length", "turn_limit", "error"]
GREEDY = "-greedy"
MOST_REWARD = 1e6
"""Size beyond which a component's value is a fault of its function: squares of larger ones overflow."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call in an assistant turn; `ok` is None where success is unknown."""

    name: str
    arguments: str = ""
    ok: bool | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tokens: int | None = None


def no_reward(value: float | None) -> str:
    """Why a component's value is no reward, and what to do; empty where it is one."""
    if value is None or abs(value) <= MOST_REWARD:
        return ""
    if math.isfinite(value):
        return f"a reward lies between -{MOST_REWARD:,.0f} and {MOST_REWARD:,.0f}: correct the function, or scale it"
    return "a reward is a finite number, or None where it does not apply: correct the function"


def greedy_split(split: str) -> str:
    """The split that greedy attempts at a split's tasks are stored under, so that no reader of `search` averages them
    in."""
    return split + GREEDY


def rollout_id(run: str, branch: str, seed: int, step: int, task: str, k: int, attempt: int = 0) -> str:
    """Identity of a rollout: 32 hex digits of a hash over where it came from, so that a replay is a no-op."""
    key = f"{run}\x1f{branch}\x1f{seed}\x1f{step}\x1f{task}\x1f{k}\x1f{attempt}"
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt of one policy version at one task.

    `reward` is the composed training reward (None: not graded); `components` holds every named reward component
    the environment computed, also those the recipe gives no weight, so that a reward change can be backtested.
    """

    id: str
    task: str
    turns: tuple[Turn, ...]
    reward: float | None
    components: Mapping[str, float | None] = field(default_factory=dict)
    outcome: Outcome = "unknown"
    finish: Finish | None = None
    run: str = ""
    branch: str = ""
    policy: str = ""
    """Policy version that sampled it: `<branch>/<seed>@<step>`."""
    split: str = ""
    """train, search, gate or cert; of greedy attempts `greedy_split` of it."""
    step: int = 0
    seed: int = 0
    group: str = ""
    """Group id: all rollouts of one task by one policy version share it."""
    k: int = 0
    """Index within the group."""
    attempt: int = 0
    """0, or n after n retries of an infrastructure fault."""
    tokens: int | None = None
    """Completion tokens sampled by the policy."""
    advantage: float | None = None
    """Advantage used in training; None outside training or where the group was filtered."""
    mean_logprob: float | None = None
    """Mean log-probability of the sampled tokens, nats."""
    entropy: float | None = None
    """Mean token entropy of the sampling distribution, nats."""
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    sandbox_tier: str | None = None
    knobs: Mapping[str, Any] = field(default_factory=dict)
    """Environment knobs it was made under."""
    env_hash: str = ""
    error: str | None = None
    error_kind: str | None = None
    """Class of an infrastructure fault (timeout of the infrastructure, sandbox fault, ...); None: no fault."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """What a reader wants to see with it: per-test results, the visible tests, ... JSON-able."""

    @property
    def completion(self) -> str:
        """Text of all assistant turns, joined by newlines."""
        return completion_of(self.turns)

    @property
    def prompt(self) -> str:
        """Text of the turns before the first assistant turn."""
        return prompt_of(self.turns)


def turn_text(t: Turn) -> str:
    """A turn's text; tolerates a text that is no string."""
    return t.text if isinstance(t.text, str) else ("" if t.text is None else str(t.text))


def completion_of(turns: Iterable[Turn]) -> str:
    """Text of the assistant turns, joined by newlines."""
    return "\n".join(turn_text(t) for t in turns if t.role == "assistant")


def prompt_of(turns: Iterable[Turn]) -> str:
    """Text of the turns before the first assistant turn, joined by newlines."""
    return "\n".join(turn_text(t) for t in takewhile(lambda t: t.role != "assistant", turns))


GROUPED_BY = ("run", "branch", "seed", "policy", "split", "step", "task")
"""What the rollouts of one group share where the trainer named no group: one task by one policy at one step."""


def group_key(r: Rollout) -> tuple[object, ...]:
    """What the rollouts of one group share: the group's name, else GROUPED_BY."""
    return (r.group,) if r.group else tuple(getattr(r, name) for name in GROUPED_BY)


def groups_of(rollouts: Iterable[Rollout]) -> list[list[Rollout]]:
    """Rollouts by group, in order of first appearance, each in the order given."""
    by_group: dict[tuple[object, ...], list[Rollout]] = {}
    for r in rollouts:
        by_group.setdefault(group_key(r), []).append(r)
    return list(by_group.values())

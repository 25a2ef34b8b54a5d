"""Hooks: executable edits of the algorithm, a file of pure functions that a training calls once a step.

A recipe holds them as it holds written reward components: `<name>@<hash of the source>` -> source. What a function is
handed and may answer stands here; none is shown outcome, gate or cert, and each call runs by itself in the sandbox.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from evotrainer.records.rollout import Rollout
from evotrainer.records.text import counted
from evotrainer.records.untrusted_values import CallResults, in_words, number
from evotrainer.records.written import defined, settled_name, static_fault

ENTRIES: Mapping[str, tuple[str, ...]] = {
    "advantages": ("group",),
    "weights": ("rollouts",),
    "select": ("tasks", "history"),
}
"""Function -> its arguments; a file defines one at least, and two files of a recipe none in common."""
SHOWN = frozenset({"advantage", "advantages"})
"""What hooks are shown and reward components are not: training's own figures."""
LARGEST = 100.0
"""Of an advantage's magnitude, and of a weight. Group scaling gives at most (n - 1) / sqrt(n), 7.9 for 64 rollouts."""
DETAIL = "hook"
"""Key of `Rollout.detail` under which a training stores `weight` and sampling `round` of a rollout."""


class HookCaller(Protocol):
    """Runs a function of a source in the sandbox, each call by itself."""

    def call(self, source: str, entry: str, arguments: Sequence[tuple[Any, ...]]) -> CallResults:
        """SandboxError: the machine's fault."""
        ...


def settled_hooks(hooks: Mapping[str, str]) -> dict[str, str]:
    """The sources under their full names; ValueError where a name is none, or two define the same function."""
    out: dict[str, str] = {}
    owner: dict[str, str] = {}
    for key, source in hooks.items():
        full = settled_name("hook", key, source)
        for entry in sorted(defined(source) & ENTRIES.keys()):
            if entry in owner:
                raise ValueError(f"hooks {owner[entry]} and {full} both define {entry}; leave one of them out")
            owner[entry] = full
        out[full] = source
    return out


def hook_of(hooks: Mapping[str, str], entry: str) -> tuple[str, str] | None:
    """(name, source) of the hook that defines a function."""
    return next(((n, s) for n, s in hooks.items() if entry in defined(s)), None)


def hook_fault(source: str, protected: Collection[str] = ()) -> tuple[str, str] | None:
    """(label, why) of what a hook's source says against it; see `written.static_fault`."""
    return static_fault(source, protected, ENTRIES, SHOWN)


def group_view(
    rollouts: Sequence[Rollout], own: Sequence[float | None], step: int, steps: int, protected: Collection[str]
) -> dict[str, Any]:
    """What `advantages` is handed of a kept group of G rollouts: lists of G, None where a rollout has no such value.

    `rewards`: as the recipe composes them, None for infrastructure faults. `components`: name -> value of those that
    may be paid. `lengths`: sampled tokens. `logprobs`, `entropies`: means over them, nats. `finishes`: stop, length,
    error. `advantages`: `own`, those of the recipe's own rules. `step` of `steps`: of this recipe, from 1.
    """
    return {
        "step": step,
        "steps": steps,
        "rewards": [r.reward for r in rollouts],
        "components": [_payable(r, protected) for r in rollouts],
        "lengths": [r.tokens for r in rollouts],
        "logprobs": [r.mean_logprob for r in rollouts],
        "entropies": [r.entropy for r in rollouts],
        "finishes": [r.finish for r in rollouts],
        "advantages": list(own),
    }


def rollout_views(
    groups: Sequence[Sequence[Rollout]], step: int, steps: int, protected: Collection[str]
) -> list[dict[str, Any]]:
    """What `weights` is handed of a sampling round: all its rollouts, group by group, before any is left out. Keys as
    those of `group_view`, in the singular, and `group`, counted from 0."""
    return [
        {
            "step": step,
            "steps": steps,
            "group": i,
            "reward": r.reward,
            "components": _payable(r, protected),
            "length": r.tokens,
            "logprob": r.mean_logprob,
            "entropy": r.entropy,
            "finish": r.finish,
        }
        for i, g in enumerate(groups)
        for r in g
    ]


def _payable(r: Rollout, protected: Collection[str]) -> dict[str, float | None]:
    return {k: None if v is None else float(v) for k, v in sorted(r.components.items()) if k not in protected}


def wrong_advantages(value: object, rewards: Sequence[float | None]) -> str:
    """What is wrong with an answer of `advantages`; empty where nothing is."""
    if type(value) is not list or len(value) != len(rewards):
        return f"it answers {in_words(value)}, not a list of {len(rewards)} numbers, one for each rollout"
    for i, (a, r) in enumerate(zip(value, rewards, strict=True)):
        x = number(a)
        if (r is None) != (a is None):
            return f"place {i} is {in_words(a)}; None stands where the reward is None, and only there"
        if r is not None and (x is None or abs(x) > LARGEST):
            return f"place {i} is {in_words(a)}, no finite number from -{LARGEST:g} to {LARGEST:g}"
    return ""


def wrong_weights(value: object, n: int) -> str:
    """What is wrong with an answer of `weights` for `n` rollouts; empty where nothing is."""
    if type(value) is not list or len(value) != n:
        return f"it answers {in_words(value)}, not a list of {n} numbers, one for each rollout"
    for i, a in enumerate(value):
        x = number(a)
        if x is None or not 0 <= x <= LARGEST:
            return f"place {i} is {in_words(a)}, no finite number from 0 to {LARGEST:g}"
    return ""


def wrong_choice(value: object, n: int, tasks: int, taken: Collection[int]) -> str:
    """What is wrong with an answer of `select`: `n` places of tasks, none twice in a step while others are left."""
    if type(value) is not list or len(value) != n:
        return f"it answers {in_words(value)}, not a list of {n} places of tasks"
    for i, a in enumerate(value):
        if type(a) is not int or not 0 <= a < tasks:
            return f"place {i} is {in_words(a)}, no whole number from 0 to {tasks - 1}"
    fresh = {*value} - {*taken}
    if len(fresh) < min(n, tasks - len({*taken})):
        return f"it draws {counted(len(fresh), 'task')} that this step has not had, of {n} asked for; draw each once"
    return ""

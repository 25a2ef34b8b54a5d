"""A batch of rollouts as the harness reads it: grouped, faults set apart, with shared arrays computed once.

Shapes: N live rollouts, G groups. Arrays are float64 with NaN for missing values.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from evotrainer.harness.numerics import Floats, Ints, group_range, group_std, nan_or
from evotrainer.harness.program import Facts, facts
from evotrainer.harness.shown import ShownTest, shown_tests
from evotrainer.harness.text import MAX_TEXT, normalised, program_text, words
from evotrainer.records.rollout import Rollout, Turn

X = TypeVar("X")


def group_key(r: Rollout) -> str:
    """The rollout's group; where the trainer named none, rollouts of one task by one policy version share one."""
    return r.group or "\x1f".join((r.branch, str(r.seed), r.policy, str(r.step), str(r.task)))


def completion(r: Rollout) -> str:
    """Text of the assistant turns; tolerates turns whose text is not a string."""
    return "\n".join(_text(t) for t in r.turns if t.role == "assistant")


def prompt(r: Rollout) -> str:
    """Text before the first assistant turn."""
    out: list[str] = []
    for t in r.turns:
        if t.role == "assistant":
            break
        out.append(_text(t))
    return "\n".join(out)


def _text(t: Turn) -> str:
    return t.text if isinstance(t.text, str) else ("" if t.text is None else str(t.text))


@dataclass(frozen=True, slots=True)
class Action:
    """One action of an agent: a tool call, or an assistant turn's text where no calls are recorded."""

    name: str
    text: str
    ok: bool | None

    @property
    def command(self) -> str:
        """Name and arguments as one line, for patterns."""
        return f"{self.name} {self.text}".strip() if self.name else self.text


class Batch:
    """Rollouts by group. Ones with an `error_kind` are in `faults` and in nothing else."""

    def __init__(self, groups: Iterable[Sequence[Rollout]]) -> None:
        self.groups: list[list[Rollout]] = []
        self.faults: list[Rollout] = []
        for g in groups:
            self.faults += [r for r in g if r.error_kind is not None]
            if live := [r for r in g if r.error_kind is None]:
                self.groups.append(live)
        self.rollouts: list[Rollout] = [r for g in self.groups for r in g]
        self.n = len(self.rollouts)
        self.n_groups = len(self.groups)
        sizes = [len(g) for g in self.groups]
        self.group: Ints = np.repeat(np.arange(self.n_groups, dtype=np.int64), sizes)
        tasks: dict[str, int] = {}
        self.task: Ints = np.array([tasks.setdefault(str(r.task), len(tasks)) for r in self.rollouts], dtype=np.int64)
        self.n_tasks = len(tasks)
        self._components: dict[str, Floats] = {}

    @classmethod
    def of(cls, rollouts: Iterable[Rollout]) -> Batch:
        """Group flat rollouts by `Rollout.group`; a rollout id seen twice counts once."""
        groups: dict[str, list[Rollout]] = {}
        seen: set[str] = set()
        for r in rollouts:
            if r.id and r.id in seen:
                continue
            seen.add(r.id)
            groups.setdefault(group_key(r), []).append(r)
        return cls(groups.values())

    # -- arrays over rollouts, shape (N,) --------------------------------------------------------------------------

    def column(self, get: Callable[[Rollout], object]) -> Floats:
        """A number of each rollout, NaN where it has none."""
        return np.array([nan_or(get(r)) for r in self.rollouts], dtype=float)

    @cached_property
    def reward(self) -> Floats:
        return self.column(lambda r: r.reward)

    @cached_property
    def truth(self) -> Floats:
        """1 correct, 0 incorrect, NaN unknown."""
        code = {"correct": 1.0, "incorrect": 0.0}
        return np.array([code.get(r.outcome, math.nan) for r in self.rollouts], dtype=float)

    @cached_property
    def tokens(self) -> Floats:
        """Completion tokens: recorded, else summed over assistant turns, else NaN."""
        return self.column(_tokens)

    @cached_property
    def mean_logprob(self) -> Floats:
        return self.column(lambda r: r.mean_logprob)

    @cached_property
    def entropy(self) -> Floats:
        return self.column(lambda r: r.entropy)

    @cached_property
    def advantage(self) -> Floats:
        return self.column(lambda r: r.advantage)

    @cached_property
    def truncated(self) -> Floats:
        """1 where the completion budget cut it, NaN where the trainer did not say how it ended."""
        return np.array(
            [math.nan if r.finish is None else float(r.finish == "length") for r in self.rollouts], dtype=float
        )

    @cached_property
    def component_names(self) -> tuple[str, ...]:
        return tuple(sorted({str(k) for r in self.rollouts for k in r.components}))

    def component(self, name: str) -> Floats:
        """Values of one reward component; NaN where absent or not applicable."""
        if name not in self._components:
            self._components[name] = self.column(lambda r: r.components.get(name))
        return self._components[name]

    # -- arrays over groups, shape (G,) ----------------------------------------------------------------------------

    @cached_property
    def reward_std(self) -> Floats:
        """Population std of the rewards; NaN for groups with fewer than two."""
        return group_std(self.reward, self.group, self.n_groups)

    @cached_property
    def reward_range(self) -> tuple[Floats, Floats]:
        return group_range(self.reward, self.group, self.n_groups)

    @cached_property
    def truth_range(self) -> tuple[Floats, Floats]:
        return group_range(self.truth, self.group, self.n_groups)

    # -- texts, computed once per distinct text --------------------------------------------------------------------

    @cached_property
    def texts(self) -> list[str]:
        return [completion(r) for r in self.rollouts]

    @cached_property
    def words(self) -> list[list[str]]:
        return _once(self.texts, words)

    @cached_property
    def solutions(self) -> list[str]:
        """Completions up to names, comments and layout."""
        return _once(self.texts, lambda t: normalised(program_text(t)))

    @cached_property
    def programs(self) -> list[Facts]:
        """Syntax facts of each completion read as a Python program."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _once(self.texts, lambda t: facts(program_text(t)))

    @cached_property
    def code(self) -> np.ndarray:
        """Which completions are Python programs."""
        return np.array([f.is_code for f in self.programs], dtype=bool)

    @cached_property
    def actions(self) -> list[list[Action]]:
        """Tool calls; the assistant turns' texts where a rollout has several turns and no recorded calls."""
        return [actions_of(r) for r in self.rollouts]

    @cached_property
    def tests(self) -> list[tuple[ShownTest, ...]]:
        """Tests recorded beside each rollout, visible and hidden."""
        return [shown_tests(r) for r in self.rollouts]

    @cached_property
    def acts(self) -> bool:
        """Does any rollout act: tool calls, or more than one assistant turn?"""
        return any(self.actions)

    def has(self, field: str) -> bool:
        """Is the field present in at least one live rollout? Names: those of `NEEDS`."""
        return NEEDS[field](self)


def _once(texts: Sequence[str], f: Callable[[str], X]) -> list[X]:
    """f of each text, called once per distinct text."""
    memo: dict[str, X] = {}
    out: list[X] = []
    for t in texts:
        if t not in memo:
            memo[t] = f(t)
        out.append(memo[t])
    return out


def _tokens(r: Rollout) -> float | None:
    if r.tokens is not None:
        return r.tokens
    counts = [t.tokens for t in r.turns if t.role == "assistant" and t.tokens is not None]
    return float(sum(counts)) if counts else None


def actions_of(r: Rollout) -> list[Action]:
    """What a rollout did, in order; empty for a single answer without tool calls."""
    calls = [Action(str(c.name), str(c.arguments), c.ok) for t in r.turns for c in t.tool_calls]
    if calls:
        return calls
    said = [_text(t) for t in r.turns if t.role == "assistant"]
    return [Action("", s[:MAX_TEXT].strip(), None) for s in said] if len(said) > 1 else []


NEEDS: dict[str, Callable[[Batch], bool]] = {
    "reward": lambda b: bool(np.isfinite(b.reward).any()),
    "outcome": lambda b: bool(np.isfinite(b.truth).any()),
    "components": lambda b: bool(b.component_names),
    "tokens": lambda b: bool(np.isfinite(b.tokens).any()),
    "finish": lambda b: bool(np.isfinite(b.truncated).any()),
    "mean_logprob": lambda b: bool(np.isfinite(b.mean_logprob).any()),
    "entropy": lambda b: bool(np.isfinite(b.entropy).any()),
    "advantage": lambda b: bool(np.isfinite(b.advantage).any()),
    "tool_calls": lambda b: any(t.tool_calls for r in b.rollouts for t in r.turns),
    "tool_ok": lambda b: any(c.ok is not None for r in b.rollouts for t in r.turns for c in t.tool_calls),
    "actions": lambda b: b.acts,
    "text": lambda b: any(b.texts),
    "programs": lambda b: bool(b.code.any()),
    "groups": lambda b: any(len(g) > 1 for g in b.groups),
    "detail.tests": lambda b: any(b.tests),
    "prompts": lambda b: any(prompt(r) for r in b.rollouts),
}
"""Field name -> is it there? What a metric or detector lacks is reported under these names."""

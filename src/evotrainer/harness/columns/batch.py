"""A batch of rollouts as metrics and detectors read it: grouped, faults set apart, every number an array.

Shapes: N live rollouts, G groups, rollouts of one group side by side. Arrays are float64 with NaN for missing values.
Whole rollouts are only fetched where one is quoted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from evotrainer.harness.code_reading.actions import Action, actions_of
from evotrainer.harness.code_reading.recorded import ShownTest, shown_tests
from evotrainer.harness.columns import traits
from evotrainer.harness.columns.chunk import FINISH
from evotrainer.harness.columns.numerics import Floats, Ints, distinct, group_range, population_std
from evotrainer.harness.columns.source import InMemoryRollouts, JoinedRollouts, RolloutSource
from evotrainer.harness.columns.traits import Traits
from evotrainer.records.rollout import Rollout, completion_of
from evotrainer.records.text import first_number

NAMED_TASKS = 20_000
"""Tasks of a batch whose names or tags are looked up."""
FEW = 32
"""Tasks looked at first: where none of them has a tag, the others are not asked."""


def task_tags(batch: Batch) -> dict[str, list[str | None]]:
    """Tag -> its value for each of the first NAMED_TASKS tasks, None where a task has none; empty without tags."""
    first = np.unique(batch.task, return_index=True)[1][:NAMED_TASKS].tolist()
    some = first[:: max(1, len(first) // FEW)]
    if not any(_tags(d) for d in batch.column("detail", some)):
        return {}
    rows = [_tags(d) for d in batch.column("detail", first)]
    names = sorted({name for row in rows for name in row})
    return {name: [row.get(name) for row in rows] for name in names}


def _tags(detail: object) -> dict[str, str]:
    found = detail.get("tags") if isinstance(detail, Mapping) else None
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, Mapping) else {}


def tag_codes(batch: Batch, tag: str) -> tuple[list[str], Ints]:
    """(values of a tag, the code of each task's value), -1 for tasks without it; shape (n_tasks,)."""
    values = task_tags(batch).get(tag, [])
    names = sorted({v for v in values if v is not None})
    code = {v: i for i, v in enumerate(names)}
    out = np.full(batch.n_tasks, -1, dtype=np.int64)
    out[: len(values)] = [-1 if v is None else code[v] for v in values]
    return names, out


def tag_numbers(batch: Batch, tag: str) -> Floats:
    """First number in a tag's value by task, NaN where there is none; shape (n_tasks,)."""
    out = np.full(batch.n_tasks, np.nan)
    for i, v in enumerate(task_tags(batch).get(tag, [])):
        found = first_number(v or "")
        out[i] = np.nan if found is None else found
    return out


class Batch:
    """Rollouts by group. Ones with an `error_kind` are counted in `faults` and are in nothing else."""

    def __init__(self, groups: Iterable[Sequence[Rollout]]) -> None:
        """Rollouts that are grouped already."""
        listed = [list(g) for g in groups]
        source = InMemoryRollouts([r for g in listed for r in g])
        self._arrange(source.traits, source, None, np.repeat(np.arange(len(listed)), [len(g) for g in listed]))

    @classmethod
    def of(cls, rollouts: Iterable[Rollout] | Batch) -> Batch:
        """Group flat rollouts by `group_key`; a rollout id seen twice counts once. What is a batch stays as it is."""
        return rollouts if isinstance(rollouts, Batch) else cls.over(InMemoryRollouts(list(rollouts)))

    @classmethod
    def over(
        cls, source: RolloutSource, read: Traits | None = None, places: Ints | None = None, apart: bool = False
    ) -> Batch:
        """The rollouts of a source by group, an id seen twice once.

        `read`: traits of its rows, or of those at `places`. `apart`: each rollout is a group of its own, in the
        source's order, and counts as often as it is there.
        """
        batch, read = cls.__new__(cls), source.traits if read is None else read
        batch._arrange(read, source, places, np.arange(read.n) if apart else None)
        return batch

    def pick(self, indices: Sequence[int] | Ints) -> Batch:
        """Some live rollouts, each a group of its own, in the given order."""
        at = np.asarray(indices, dtype=np.int64)
        return Batch.over(self.source, traits.take(self.traits, at), self.rows[at], apart=True)

    def with_components(self, values: Mapping[str, Floats]) -> Batch:
        """The same rollouts with further reward components, (N,) each."""
        traits = replace(self.traits, components={**self.traits.components, **values})
        batch = copy(self)
        batch.traits, batch._seen = traits, {}
        return batch

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """The live rollouts of several batches, one after the other, each a group of its own."""
        starts = np.cumsum([0, *(b.source.n for b in batches)]).tolist()
        rows = [b.rows + a for b, a in zip(batches, starts, strict=False)]
        places = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        whole = JoinedRollouts([b.source for b in batches])
        return cls.over(whole, traits.join([b.traits for b in batches]), places, apart=True)

    def _arrange(self, read: Traits, source: RolloutSource, places: Ints | None, group: Ints | None) -> None:
        """`places` in the source and `group` of each row of `read`; None: all rows; groups by key, each id once."""
        self.source = source
        self._seen: dict[str, bool] = {}
        at = np.arange(read.n) if places is None else places
        rows = np.arange(read.n)
        # np.unique with indices is the dearer sort: only where an id is really there twice
        if group is None and len(distinct(read.keys["id"])[0]) < read.n:
            rows = np.sort(np.unique(read.keys["id"], return_index=True)[1])
        fault = read.fault.code[rows]
        counts = np.bincount(fault[fault >= 0], minlength=len(read.fault.names))
        self.faults = {k: int(c) for k, c in zip(read.fault.names, counts, strict=False) if c}
        """error_kind -> rollouts"""
        self.n_faults = int((fault >= 0).sum())
        self.fault_rows: Ints = at[rows[fault >= 0]]
        rows = rows[fault < 0]
        group = _by_appearance((read.keys["group"] if group is None else group)[rows])
        # stable: members stay in stored order, so that "first of its group" is the same in every reading
        if len(group) and (np.diff(group) < 0).any():
            order = np.argsort(group, kind="stable")
            rows, group = rows[order], group[order]
        self.rows: Ints = at[rows]
        """Place of each live rollout in the source, (N,)."""
        self.traits = (
            read if len(rows) == read.n and bool((rows == np.arange(read.n)).all()) else traits.take(read, rows)
        )
        self.n = len(rows)
        self.group: Ints = group
        self.n_groups = int(group[-1]) + 1 if self.n else 0
        self.task: Ints = _by_appearance(self.traits.keys["task"])
        self.n_tasks = int(self.task.max()) + 1 if self.n else 0
        self.sizes: Ints = np.bincount(group, minlength=self.n_groups)
        self.first: Ints = np.cumsum(self.sizes) - self.sizes
        """Index of each group's first rollout, (G,)."""

    # -- arrays over rollouts, shape (N,) --------------------------------------------------------------------------

    def trait(self, name: str) -> Floats:
        """A column of `traits.FLOATS`."""
        return self.traits.columns[name].astype(np.float64, copy=False)

    @property
    def reward(self) -> Floats:
        return self.trait("reward")

    @property
    def truth(self) -> Floats:
        """1 correct, 0 incorrect, NaN unknown."""
        return self.trait("truth")

    @property
    def tokens(self) -> Floats:
        """Completion tokens: recorded, else summed over assistant turns, else NaN."""
        return self.trait("tokens")

    @property
    def mean_logprob(self) -> Floats:
        return self.trait("mean_logprob")

    @property
    def entropy(self) -> Floats:
        return self.trait("entropy")

    @property
    def advantage(self) -> Floats:
        return self.trait("advantage")

    @cached_property
    def truncated(self) -> Floats:
        """1 where the completion budget cut it, NaN where the trainer did not say how it ended."""
        finish = self.trait("finish")
        return np.where(np.isnan(finish), np.nan, (finish == FINISH["length"]).astype(float))

    @cached_property
    def acting(self) -> np.ndarray:
        """Rollouts that act: tool calls, or more than one assistant turn; bool."""
        return np.nan_to_num(self.trait("actions")) > 0

    @cached_property
    def programs(self) -> float:
        """How many completions are Python programs; estimated from a sample in large batches."""
        code = self.trait("is_code")
        known = code[~np.isnan(code)]
        return float(known.mean()) * self.n if len(known) else 0.0

    @cached_property
    def submissions(self) -> float:
        """The same with programs that parse in part, as those that were cut off."""
        partial = self.trait("partial")
        known = partial[~np.isnan(partial)]
        return self.programs + (float(known.mean()) * self.n if len(known) else 0.0)

    @cached_property
    def patches(self) -> int:
        """How many rollouts have a patch of Python code; counted, never estimated."""
        return int(np.isfinite(self.trait("reaches")).sum())

    @property
    def component_names(self) -> tuple[str, ...]:
        return tuple(sorted(self.traits.components))

    def component(self, name: str) -> Floats:
        """Values of one reward component; NaN where absent or not applicable."""
        found = self.traits.components.get(name)
        return found if found is not None else np.full(self.n, np.nan)

    # -- arrays over groups, shape (G,) ----------------------------------------------------------------------------

    @cached_property
    def reward_std(self) -> Floats:
        """Population std of the rewards; NaN for groups with fewer than two."""
        return population_std(self.reward, self.group, self.n_groups)

    @cached_property
    def reward_range(self) -> tuple[Floats, Floats]:
        return group_range(self.reward, self.group, self.n_groups)

    @cached_property
    def truth_range(self) -> tuple[Floats, Floats]:
        return group_range(self.truth, self.group, self.n_groups)

    # -- single rollouts -------------------------------------------------------------------------------------------

    def rollout(self, i: int) -> Rollout:
        """Live rollout i, whole."""
        return self.rollouts_at([i])[0]

    def rollouts_at(self, indices: Sequence[int]) -> list[Rollout]:
        """Live rollouts, whole; keep the list short where they are stored."""
        return self.source.rollouts(self.rows[list(indices)].tolist())

    def turns(self, indices: Sequence[int]) -> list[tuple[Any, ...]]:
        """Turns of live rollouts."""
        return self.source.turns(self.rows[list(indices)].tolist())

    def column(self, name: str, indices: Sequence[int] | None = None) -> list[Any]:
        """Values of a field of `Rollout` that is plain or JSON, of live rollouts (None: all)."""
        return self.source.column(name, (self.rows if indices is None else self.rows[list(indices)]).tolist())

    def text(self, i: int) -> str:
        return completion_of(self.turns([i])[0])

    def actions(self, i: int) -> list[Action]:
        return actions_of(self.turns([i])[0])

    def tests(self, i: int) -> tuple[ShownTest, ...]:
        """Tests recorded with a rollout, visible and hidden."""
        return shown_tests(self.rollout(i))

    def has(self, field: str) -> bool:
        """Is the field present in at least one live rollout? Names: those of `NEEDS`."""
        if field not in self._seen:
            self._seen[field] = NEEDS[field](self)
        return self._seen[field]

    @cached_property
    def solutions(self) -> tuple[Ints, Ints]:
        """(distinct solutions, how often each occurs), most frequent first."""
        values, counts = distinct(self.traits.solution)
        order = np.argsort(-counts, kind="stable")
        return values[order], counts[order]


def _by_appearance(keys: Ints) -> Ints:
    """Codes 0, 1, ... of the keys, in order of their first appearance. Equal neighbours cost nothing."""
    if not len(keys):
        return np.zeros(0, dtype=np.int64)
    # runs of equal keys first: stored groups lie together, so np.unique sorts G values instead of N
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    _, first, inverse = np.unique(keys[starts], return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    # np.unique numbers by value (a hash here); ranks by first appearance are what a reader can follow
    rank[np.argsort(first)] = np.arange(len(first))
    return np.repeat(rank[inverse], np.diff(np.concatenate([starts, [len(keys)]])))


def _any(name: str) -> Callable[[Batch], bool]:
    return lambda b: bool(np.isfinite(b.traits.columns[name]).any())


NEEDS: dict[str, Callable[[Batch], bool]] = {
    "reward": _any("reward"),
    "outcome": _any("truth"),
    "components": lambda b: bool(b.component_names),
    "tokens": _any("tokens"),
    "finish": _any("finish"),
    "mean_logprob": _any("mean_logprob"),
    "entropy": _any("entropy"),
    "advantage": _any("advantage"),
    "tool_calls": lambda b: len(b.traits.calls["row"]) > 0,
    "tool_ok": lambda b: bool((b.traits.calls["ok"] >= 0).any()),
    "actions": lambda b: bool(b.acting.any()),
    "text": lambda b: bool((b.trait("words") > 0).any() or b.acting.any()),
    "programs": lambda b: b.programs > 0,
    # programs that cannot be read are there, too: the detector says so
    "programs or patches": lambda b: (
        b.patches > 0 or b.submissions > 0 or bool((b.trait("unread") > 0).any() or (b.trait("bypass") > 0).any())
    ),
    "groups": lambda b: bool((b.sizes > 1).any()),
    "detail.tests": _any("explained"),
    "detail.probes": _any("probed"),
    "programs with tests or examples": _any("special"),
    "prompts": lambda b: bool((b.trait("prompt") > 0).any()),
}
"""Field name -> is it there? What a metric or detector lacks is reported under these names."""

"""One arithmetic: what a training computes of random groups, a replay, `verify` and the verl plug-ins compute again."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from evotrainer.algorithm.advantages import Floats, flat, group_stats
from evotrainer.algorithm.filters import FilterState
from evotrainer.envs.base import Score, Task
from evotrainer.extras.verl.signal import Signal
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.layers.signal import dead_masks
from evotrainer.harness.whatif.factor_replays import full_marks
from evotrainer.harness.whatif.replay import (
    ReplayInput,
    compose,
    in_band,
    task_rates,
    task_weights,
    trained_advantages,
    trained_groups,
)
from evotrainer.records.hooks import HookCaller
from evotrainer.records.recipe import Curriculum, GroupFilter, LengthRule, Recipe
from evotrainer.records.rollout import Turn
from evotrainer.trainers.base import Identity
from evotrainer.trainers.curriculum import TagFrontier, TaskStream
from evotrainer.trainers.groups import Group, collect
from evotrainer.trainers.phases import successes
from evotrainer.trainers.rollouts import Attempt, Provenance
from evotrainer.verify.written import _ReplayedHooks
from tests.harness_inputs import rollout

EARNED = (None, 0.0, 1.0, 0.25, 0.1 + 0.2, 0.3, 0.3 + 1e-9, 0.3 + 3e-8, 0.3 + 1e-4)
"""What a component gives: rounding errors and the smallest spreads on both sides of the threshold among them."""
SIZE = 4


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    return Recipe(
        rewards=draw(st.sampled_from([{"a": 1.0}, {"a": 0.7, "b": -0.3, "c": 0.0}, {"b": 1.0, "a": 0.1}])),
        length=LengthRule(
            kind=draw(st.sampled_from(["none", "token_penalty", "overlong", "correct_bonus"])),
            weight=draw(st.sampled_from([0.0, 0.01, 0.4])),
        ),
        repetition_penalty=draw(st.sampled_from([0.0, 0.3])),
        reward_scaling=draw(st.sampled_from(["group", "batch", "none"])),
        negative_weight=draw(st.sampled_from([1.0, 0.5, 0.0])),
        group_filter=GroupFilter(
            kind=draw(st.sampled_from(["none", "zero_variance", "ema_std", "snr_top_p"])),
            keep=draw(st.sampled_from([0.3, 0.9, 1.0])),
        ),
        max_tokens=6,
        max_turns=draw(st.sampled_from([1, 2])),
        group_size=SIZE,
    )


def attempt(task: Any, k: int, a: float | None, b: float | None, n: int, turns: int) -> Attempt:
    """An attempt that earned `a` and `b` with `n` tokens; without either, lost to a fault."""
    said = tuple(Turn("assistant", "x") for _ in range(turns))
    score = Score({"a": a, "b": b, "c": 9.0}, "unknown", None, "sandbox" if a is None and b is None else None)
    ids = [i % 3 for i in range(n)]
    return Attempt(task, k, SimpleNamespace(turns=said, finish=None), (1,), ids, [True] * n, score=score)


def trained(recipe: Recipe, rows: Sequence[Sequence[tuple[float | None, float | None, int, int]]]) -> list[Group]:
    """The groups of a step of training, as trainers make them of what the attempts earned."""
    tasks = [Task(f"t{i:03}", "train", "") for i in range(len(rows))]
    stream: Any = SimpleNamespace(step=0, draw=lambda n, taken: (list(range(n)), 0), update=lambda task, rate: None)
    where = Provenance(Identity("r", "b0", 1), "train", 1, 0, {}, "", None, keep_tokens=True)

    def sample(plan: Sequence[tuple[Any, range]]) -> list[Attempt]:
        return [
            attempt(task, k, *rows[int(task.id[1:])][k][:3], min(rows[int(task.id[1:])][k][3], recipe.max_turns))
            for task, ks in plan
            for k in ks
        ]

    one_step = recipe.model_copy(update={"prompts_per_step": len(rows)})
    return collect(sample, tasks, stream, FilterState(), one_step, where, lambda phase: None)


row = st.tuples(st.sampled_from(EARNED), st.sampled_from(EARNED), st.integers(0, 12), st.integers(1, 2))
steps = st.lists(st.lists(row, min_size=SIZE, max_size=SIZE), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None, phases=set(Phase) - {Phase.shrink})  # shrinking a whole step takes minutes
@given(recipe=recipes(), rows=steps)
def test_a_replay_verify_and_verl_give_a_trainings_numbers_to_the_bit(recipe: Recipe, rows: Any) -> None:
    groups = trained(recipe, rows)
    stored = [r for g in groups for r in g.rollouts if r.error_kind is None]
    alive = [g for g in groups if g.rewards]
    if not stored:
        return

    batch = Batch.of(stored)
    reward = compose(batch, recipe)
    assert reward.tolist() == [r.reward for r in stored]
    assert trained_groups(batch, recipe, reward).tolist() == [g.kept for g in alive]
    assert trained_advantages(batch, recipe, reward).tolist() == [r.advantage or 0.0 for r in stored]
    assert dead_masks(batch)["dead"].tolist() == [len(g.rewards) > 1 and g.std == 0.0 for g in alive]
    right = [a.sampled for a in successes(groups, recipe)]
    marks = full_marks(ReplayInput(batch, recipe, recipe, HarnessContext()), recipe)
    assert marks is not None and bool(right) == bool(marks.any())

    again = _ReplayedHooks(recipe, 1, (), HookCaller)  # type: ignore[arg-type]
    assert again.differences([g.rollouts for g in groups]) == []

    rows_of = Signal(recipe).rows(
        [r.reward or 0.0 for r in stored], [r.tokens or 0 for r in stored], [r.task for r in stored]
    )
    counted = sum(len(g.rewards) for g in groups if g.kept)
    scale = recipe.prompts_per_step * recipe.group_size / counted if counted else 1.0
    assert rows_of.advantages == [(r.advantage or 0.0) * scale for r in stored]


@settings(max_examples=60, deadline=None)
@given(groups=st.lists(st.lists(st.floats(-1e3, 1e3), max_size=40), min_size=1, max_size=9))
def test_statistics_of_many_groups_are_those_of_each_alone_to_the_bit(groups: list[list[float]]) -> None:
    """Recorded trainings were computed one group at a time."""
    mean, std = group_stats(*flat(groups), len(groups))
    alone = [float(np.std(np.array(g), ddof=1)) if len(g) > 1 else 0.0 for g in groups]
    assert mean.tolist() == [float(np.mean(g)) if g else 0.0 for g in groups]
    assert std.tolist() == [0.0 if s < 1e-8 else s for s in alone]


@settings(max_examples=60, deadline=None)
@given(rates=st.lists(st.integers(0, 8), min_size=2, max_size=8), low=st.sampled_from([0.0, 0.25, 0.3]))
def test_a_curriculum_is_replayed_by_the_weights_that_it_draws_by(rates: list[int], low: float) -> None:
    tags = [str(i // 2) for i in range(len(rates))]
    stored = [
        rollout(f"t{i}", k, correct=k < n, detail={"tags": {"kind": tag}})
        for i, (n, tag) in enumerate(zip(rates, tags, strict=True))
        for k in range(8)
    ]
    batch = Batch.of(stored)
    tasks = [Task(f"t{i}", "train", "", tags={"kind": tag}) for i, tag in enumerate(tags)]
    rate: Floats = task_rates(batch)

    band = Curriculum(kind="pass_rate_band", low=low, high=0.75)
    stream = TaskStream(tasks, band, 0)
    stream.rates = {t.id: float(p) for t, p in zip(tasks, rate, strict=True)}
    assert in_band(batch, band).tolist() == [stream._qualifies(i) for i in range(len(tasks))]

    if len(set(tags)) > 1:
        frontier = Curriculum(kind="tag_frontier", tag="kind")
        drawn = TagFrontier(tasks, frontier, 0)
        drawn.solved = {
            v: float(np.mean([p for p, tag in zip(rate, tags, strict=True) if tag == v])) for v in set(tags)
        }
        assert task_weights(batch, frontier).tolist() == [drawn.weight(tag) for tag in tags]

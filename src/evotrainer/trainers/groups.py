"""One step's groups: draw tasks, attempt them, compose rewards, filter, resample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evotrainer.algorithm.advantages import Floats, Ints, advantages, flat, group_std, nested, turn_advantages, weighed
from evotrainer.algorithm.filters import FilterState, keep_groups
from evotrainer.algorithm.rewards import pass_mark
from evotrainer.records.hooks import DETAIL
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout
from evotrainer.trainers.curriculum import TaskStream
from evotrainer.trainers.hooks import StepHooks
from evotrainer.trainers.rollouts import Attempt, Provenance, rollouts
from evotrainer.trainers.wordings import Worded

Sample = Callable[[Sequence[tuple[Any, range]]], Sequence[Attempt]]
"""Scored attempts for each (task, ks) of a plan, in order, k by k."""


@dataclass(slots=True)
class Group:
    """Attempts of one task in one step."""

    attempts: Sequence[Attempt]
    rollouts: list[Rollout]
    turns: list[tuple[float, ...] | None] | None = None
    """Advantages of each rollout's turns, where the recipe credits turns."""
    weights: list[float] | None = None
    """What a hook multiplies each rollout's advantage by."""
    kept: bool = True
    outside_band: bool = False
    std: float = 0.0
    """Of its rewards; 0 without spread."""

    @property
    def rewards(self) -> list[float]:
        """Rewards of the rollouts that were graded."""
        return [r.reward for r in self.rollouts if r.reward is not None]


def collect(
    sample: Sample,
    tasks: Sequence[Any],
    stream: TaskStream,
    state: FilterState,
    recipe: Recipe,
    where: Provenance,
    clock: Callable[[str], None],
    ask: Worded = lambda task: task,
    hooks: StepHooks | None = None,
) -> list[Group]:
    """All groups of a step, those filtered out included, with advantages in the rollouts of the kept ones.

    With `resample`, dropped groups are replaced by new tasks, round by round, until enough are kept (DAPO's dynamic
    sampling, arXiv 2503.14476 section 3.2). `ask`: how a task is worded this time. `hooks`: a group whose graded
    rollouts all have weight 0 is dropped as by the filter; advantages of kept ones are the hook's, times the weights.
    """
    stream.step = where.step - recipe.before
    wanted = recipe.prompts_per_step
    groups: list[Group] = []
    draws: dict[int, int] = {}
    for again in range(1 + recipe.resample):
        missing = wanted - sum(g.kept for g in groups)
        if missing <= 0:
            break
        chosen, outside = stream.draw(missing, set(draws))
        plan = []
        numbers = []
        for i in chosen:
            # a task drawn twice in a step (fewer tasks than prompts) goes on counting k: rollout ids stay distinct
            n = draws.get(i, 0)
            draws[i] = n + 1
            numbers.append(n)
            plan.append((ask(tasks[i]), range(n * recipe.group_size, (n + 1) * recipe.group_size)))
        attempts = sample(plan)
        fresh = []
        for j, n in enumerate(numbers):
            members = attempts[j * recipe.group_size : (j + 1) * recipe.group_size]
            group = Group(members, rollouts(members, where, recipe, n))
            # `draw` puts those outside the band last
            group.outside_band = j >= len(chosen) - outside
            fresh.append(group)
        # before filtering: tasks that are always or never solved are dropped groups, and just what a curriculum must
        # learn of
        _learn_rates(fresh, stream, recipe)
        stds = group_std(*_rewards(fresh), len(fresh))
        kept = keep_groups(stds, recipe.group_filter, state)
        for g, std, keep in zip(fresh, stds.tolist(), kept.tolist(), strict=True):
            # a group that lost all rollouts to infrastructure has no advantage to give
            g.std, g.kept = std, keep and bool(g.rewards)
        if hooks and "weights" in hooks:
            _weigh(fresh, hooks, stream.step, again)
        groups += fresh
        clock("grade")
    _set_advantages(groups, recipe, hooks, stream.step)
    return groups


def _rewards(groups: Sequence[Group]) -> tuple[Floats, Ints]:
    return flat([[r.reward for r in g.rollouts] for g in groups])


def _weigh(groups: Sequence[Group], hooks: StepHooks, step: int, again: int) -> None:
    """Weights of a sampling round's rollouts, which their details record."""
    for g, row in zip(groups, hooks.weights([g.rollouts for g in groups], step), strict=True):
        g.weights = row
        g.kept = g.kept and any(w > 0 for w, r in zip(row, g.rollouts, strict=True) if r.reward is not None)
        g.rollouts = [
            replace(r, detail={**r.detail, DETAIL: {"weight": w, "round": again}})
            for r, w in zip(g.rollouts, row, strict=True)
        ]


def _learn_rates(groups: Sequence[Group], stream: TaskStream, recipe: Recipe) -> None:
    """Pass rates by the recipe's own reward (half of what it can pay): training never sees the true outcome."""
    half = pass_mark(recipe.rewards)
    for g in groups:
        if g.rewards:
            stream.update(g.rollouts[0].task, sum(r >= half for r in g.rewards) / len(g.rewards))


def _set_advantages(groups: Sequence[Group], recipe: Recipe, hooks: StepHooks | None, step: int) -> None:
    """Advantages over the kept groups; batch scaling sees the kept ones only."""
    kept = [g for g in groups if g.kept]
    own = advantages(*_rewards(kept), recipe)
    values = nested(own, [g.rollouts for g in kept])
    if hooks and "advantages" in hooks and kept:
        values = hooks.advantages([g.rollouts for g in kept], values, step)
    for g, row in zip(kept, values, strict=True):
        g.rollouts = [replace(r, advantage=a) for r, a in zip(g.rollouts, row, strict=True)]
    if recipe.credit.kind == "turn":
        _credit_turns(kept, recipe)
    for g in kept:
        if g.weights is not None:
            g.rollouts = [
                r if r.advantage is None else replace(r, advantage=weighed(r.advantage, w))
                for r, w in zip(g.rollouts, g.weights, strict=True)
            ]
            if g.turns is not None:
                pairs = zip(g.turns, g.weights, strict=True)
                g.turns = [None if t is None else tuple(weighed(a, w) for a in t) for t, w in pairs]


def _credit_turns(kept: Sequence[Group], recipe: Recipe) -> None:
    """Advantages by turn beside those of the rollouts, which record the mean over their turns."""
    given = [a.score.turns or () for g in kept for a in g.attempts]
    turns = np.full((len(given), max(map(len, given), default=0)), np.nan)
    for row, of_turns in zip(turns, given, strict=True):
        row[: len(of_turns)] = of_turns
    rewards, group = _rewards(kept)
    found = turn_advantages(rewards, turns, group, recipe.credit.weight, recipe).tolist()
    each = iter(zip(found, given, strict=True))
    for g in kept:
        rows = [None if r.reward is None else tuple(a[: len(t)]) for r, (a, t) in zip(g.rollouts, each, strict=False)]
        g.turns = rows
        g.rollouts = [replace(r, advantage=sum(a) / len(a)) if a else r for r, a in zip(g.rollouts, rows, strict=True)]

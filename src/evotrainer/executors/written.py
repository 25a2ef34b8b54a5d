"""The code of a trial's recipe: an environment that also computes its written reward components; who runs its hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.envs.outcome import outcome_components, payable_components
from evotrainer.errors import SandboxError, TrainerError
from evotrainer.records.recipe import Recipe
from evotrainer.records.written import Scorer, about, evidence

if TYPE_CHECKING:
    from evotrainer.envs.base import Environment, Episode, Score

OPEN = ("train", "search")
"""Splits whose rollouts a written component is shown; those of the judge it never sees."""


@contextlib.contextmanager
def with_written(
    environment: Environment, recipe: Recipe, config: Mapping[str, Any], accept_tier_e: bool
) -> Iterator[Environment]:
    """The environment with the components that a recipe, and what it goes on from, has written; their sandbox is open
    until it is left. The environment itself is extended, no wrapper: protocols are known by its own attributes.

    `config`: the task file's `[environment]`, which says what is payable.
    """
    sources = recipe.all_written
    if not sources:
        yield environment
        return
    from evotrainer.sandbox.reward_runner import RewardRunner

    protected = unpayable_of(environment, config)
    score, components = environment.score, environment.components
    with contextlib.closing(RewardRunner(accept_tier_e)) as runner:

        def scored(episodes: Sequence[Episode]) -> list[Score]:
            return _add(sources, episodes, score(episodes), protected, runner)

        environment.score = scored  # type: ignore[method-assign]
        environment.components = {**components, **{n: about(s) for n, s in sources.items()}}
        try:
            yield environment
        finally:
            environment.score, environment.components = score, components  # type: ignore[method-assign]


@contextlib.contextmanager
def hook_fields(
    environment: Environment, recipe: Recipe, config: Mapping[str, Any], accept_tier_e: bool
) -> Iterator[dict[str, Any]]:
    """What a `TrainRequest` says of the hooks of a recipe and of what it goes on from: who runs them, each call in a
    process of the sandbox, and the components that they are not shown. Empty where there are none."""
    if not any(r.hooks for r in recipe.chain):
        yield {}
        return
    from evotrainer.sandbox.reward_runner import RewardRunner

    with contextlib.closing(RewardRunner(accept_tier_e)) as runner:
        yield {"hooks": runner, "unpayable": unpayable_of(environment, config)}


def check_trained(recipe: Recipe, store: Path, protected: tuple[str, ...], accept_tier_e: bool) -> None:
    """TrainerError where the rollouts that a training stored speak against its code, measured in a fresh sandbox."""
    if not any(r.written or r.hooks for r in recipe.chain):
        return
    from evotrainer.harness import Batch, HarnessContext
    from evotrainer.harness.columns.source import stored
    from evotrainer.harness.whatif.written import on_own_rollouts
    from evotrainer.records.reading import read_batches
    from evotrainer.sandbox.reward_runner import RewardRunner

    batch = Batch.over(stored(read_batches([store], split="train")))
    with contextlib.closing(RewardRunner(accept_tier_e)) as runner:
        context = HarnessContext(unpayable=protected, scorer=runner, hooks=runner)
        fault = on_own_rollouts(batch, recipe, context) if batch.n else None
    if fault:
        raise TrainerError(f"code of the recipe, on the training's own rollouts: {': '.join(fault)}; correct it")


def unpayable_of(environment: Environment, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Components that code of a recipe is not shown: the outcome's, but those that the task file lets training pay."""
    return tuple(sorted(set(outcome_components(environment)) - set(payable_components(config))))


def _add(
    sources: Mapping[str, str],
    episodes: Sequence[Episode],
    scores: Sequence[Score],
    protected: Collection[str],
    scorer: Scorer,
) -> list[Score]:
    """The scores with the values of all sources, in one call each; a fault of the sandbox is one of the attempts."""
    out = list(scores)
    rows = [
        i
        for i, (e, s) in enumerate(zip(episodes, scores, strict=True))
        if e.task.split in OPEN and s.error_kind is None
    ]
    shown = [evidence(episodes[i].turns, scores[i].components, scores[i].detail, protected) for i in rows]
    for name, source in sources.items() if rows else ():
        try:
            values: Sequence[float | None] = scorer(source, shown).values
        except SandboxError as e:
            for i in rows:
                out[i] = replace(out[i], error=str(e), error_kind="sandbox", outcome="unknown")
            return out
        for i, v in zip(rows, values, strict=True):
            out[i] = replace(out[i], components={**out[i].components, name: v})
    return out

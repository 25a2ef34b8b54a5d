"""Reward components as code in a run: what the harness writes for the agent, and what the checks say of anybody's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from evotrainer.factors.payable import on_offer, unpayable
from evotrainer.records.briefing import WrittenOffer
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout
from evotrainer.records.written import about, evidence
from evotrainer.rules.reading_context import harness_context
from evotrainer.run import readings
from evotrainer.run.context import RunContext

if TYPE_CHECKING:
    from evotrainer.harness import HarnessContext


@contextmanager
def replay_context(ctx: RunContext) -> Iterator[HarnessContext]:
    """The context of replays on the incumbent's rollouts, with a sandbox for code while it is open. What was checked on
    these very rollouts is not checked again."""
    batch = readings.batch(ctx, ctx.incumbent)
    known = ctx.checked_code.setdefault((ctx.incumbent, batch.n), {})
    with closing(ctx.reward_runner):
        found = harness_context(
            ctx.task, ctx.state, ctx.incumbent, ctx.detector_runner, ctx.reward_runner, ctx.reward_runner
        )
        yield replace(found, checked=known)


def fault(ctx: RunContext, recipe: Recipe) -> str:
    """Why a recipe's own code is not to be trained, by the checks of a backtest; empty where it may be."""
    from evotrainer.harness.whatif.copies import new_code
    from evotrainer.harness.whatif.written import scored

    parent = ctx.branches[ctx.incumbent].recipe
    if not (new_code(parent, recipe, "written") or new_code(parent, recipe, "hooks")):
        return ""
    with replay_context(ctx) as context:
        found = scored(readings.batch(ctx, ctx.incumbent), parent, recipe, context)
    return found.why if found.label else ""


def components(ctx: RunContext) -> dict[str, str]:
    """Components that may be paid: the environment's, and those that the champion's recipe holds as code."""
    own = {n: f"{about(s)} (code of the recipe)" for n, s in ctx.branches[ctx.incumbent].recipe.written.items()}
    return on_offer(ctx.state.environment) | own


def offers(ctx: RunContext) -> tuple[WrittenOffer, ...]:
    """What the harness writes from the incumbent's search rollouts, where the environment says which of its components
    are the outcome: then what training may not see is known. Made once for the same rollouts."""
    batch = readings.batch(ctx, ctx.incumbent)
    at = (ctx.incumbent, batch.n)
    if at not in ctx.written_offers:
        env = ctx.state.environment
        # TRL's own loop scores such environments, and runs no code of a recipe
        able = env.get("outcome") and not str(env.get("name", "")).startswith("trl:")
        ctx.written_offers[at] = _written(ctx) if able else ()
    return ctx.written_offers[at]


def _written(ctx: RunContext) -> tuple[WrittenOffer, ...]:
    from evotrainer.harness.columns.features import FeatureView
    from evotrainer.harness.evolving.writing import write
    from evotrainer.harness.whatif.replay import compose

    batch, recipe = readings.batch(ctx, ctx.incumbent), ctx.branches[ctx.incumbent].recipe
    kept = unpayable(ctx.state.environment)
    if not batch.n or any(w and bool(np.isnan(batch.component(c)).all()) for c, w in recipe.rewards.items()):
        return ()
    shown = [evidence(r.turns, r.components, r.detail, kept) for r in batch.rollouts_at(range(batch.n))]
    found = write(
        shown,
        batch.truth,
        compose(batch, recipe),
        batch.group,
        batch.task,
        FeatureView(batch).half_of_tasks,
        {c: batch.component(c) for c in components(ctx) if c in batch.component_names},
        ctx.harness.authored,
    )
    return (found,) if found else ()


def with_offers(ctx: RunContext, branch: str, rollouts: list[tuple[str, Rollout]]) -> list[tuple[str, Rollout]]:
    """(trial, rollout) with the values of what the harness wrote, for the incumbent's rollouts that it was written
    from."""
    made = offers(ctx) if branch == ctx.incumbent and rollouts else ()
    if not made:
        return rollouts
    kept = unpayable(ctx.state.environment)
    shown = [evidence(r.turns, r.components, r.detail, kept) for _, r in rollouts]
    with closing(ctx.reward_runner):
        values = {w.name: ctx.reward_runner(w.source, shown).values for w in made}
    return [
        (trial, replace(r, components={**r.components, **{n: v[i] for n, v in values.items()}}))
        for i, (trial, r) in enumerate(rollouts)
    ]

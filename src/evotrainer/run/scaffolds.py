"""Scaffolds in a run: what is checked of a text before it is trained with, and the base policy read with it alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.envs.base import EnvironmentWithDraws, EnvironmentWithSlots
from evotrainer.errors import TaskSetError
from evotrainer.projections.branches import BASE, Branch
from evotrainer.records import keys
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Turn
from evotrainer.records.scaffold import digest, fault, leaks
from evotrainer.rules.recipes import evaluated, protocol
from evotrainer.rules.scaffolds import base_trial, differ
from evotrainer.run import shortcut_audits, trial_specs

if TYPE_CHECKING:
    from evotrainer.config.task import TaskFile
    from evotrainer.envs.base import Environment
    from evotrainer.executors.spec import TrialSpec
    from evotrainer.run.context import RunContext

LONGEST = 16
"""Tasks of a split, those with the longest prompts, that a policy's context is compared with."""
Checked = Iterator[tuple[str, str]]
"""Label -> what is against it; empty: it was looked at, and nothing is."""


def why_not(ctx: RunContext, recipe: Recipe) -> str:
    """Why a recipe's own texts are not to be trained with; empty where they may be."""
    old = ctx.branches[ctx.incumbent].recipe.scaffold
    new = {k: v for k, v in recipe.scaffold.items() if old.get(k) != v}
    if not new:
        return ""
    from evotrainer.envs import open_environment

    draw = ctx.state.opened.draw if ctx.state.opened else None
    with closing(open_environment(ctx.task.environment, accept_tier_e=ctx.task.sandbox.accept_tier_e)) as opened:
        if draw and draw.seed and isinstance(opened, EnvironmentWithDraws):
            ctx.sealed.give_tasks(opened, draw.seed)
        found = checks(opened, new, recipe, ctx.task, ctx.folder / trial_specs.base_dir(ctx))
        return next((f"recipe.scaffold: {label}: {why}" for label, why in found if why), "")


def checks(
    environment: Environment, new: Mapping[str, str], recipe: Recipe, task: TaskFile, policy: Path | None
) -> Checked:
    """All checks of the texts `new` of a recipe, in the order of `records.scaffold.LABELS`, up to the first that ends
    it. `policy`: whose context must hold the prompts; None: not looked at."""
    if not isinstance(environment, EnvironmentWithSlots):
        yield "unknown_slot", f"environment {environment.name} declares no slots"
        return
    if (problem := fault(new, environment.slots, environment.name)) is not None:
        yield problem
        return
    yield from ((label, "") for label in ("unknown_slot", "identical", "placeholder_missing"))
    try:
        why = _crowded(environment, recipe, task, policy)
    except TaskSetError as e:
        yield "unknown_slot", str(e).removeprefix("recipe.scaffold: ")
        return
    finally:
        environment.use_scaffold({})
    yield "too_long", why
    splits = environment.describe()["splits"]
    tasks = {s: [(str(t.prompt), t.data) for t in environment.tasks(s)] for s, n in splits.items() if n}
    held_out = [x for s, found in tasks.items() if s != "train" for x in found]
    bad = next((k for k, text in new.items() if leaks(text, held_out, tasks.get("train", ()))), "")
    # which split and which task is not told: whoever writes texts must not learn from a refusal what gate holds
    yield "reads_protected", f"{bad} holds words of a task that policies are evaluated on, or of its answer" * bool(bad)


def _crowded(environment: Any, recipe: Recipe, task: TaskFile, policy: Path | None) -> str:
    """Why the policy's context does not hold the longest prompt and an answer; empty where it does, where it does not
    by default either, and where no policy is given."""
    from evotrainer.trainers import TRAINERS

    environment.use_scaffold(recipe.scaffold)
    room = TRAINERS[task.trainer.name].room
    if room is None or policy is None or not policy.is_dir():
        return ""
    splits = [s for s, n in environment.describe()["splits"].items() if n]
    tasks = [t for s in splits for t in sorted(environment.tasks(s), key=lambda t: -len(t.prompt))[:LONGEST]]
    sides = []
    for texts in ({}, recipe.scaffold):
        environment.use_scaffold(texts)
        # descriptions of tools stand where a template puts them
        tool_turns = [Turn("user", v) for k, v in texts.items() if k.startswith("tool_")]
        begun = [[*environment.opening(t, recipe.knobs), *tool_turns] for t in tasks]
        taken, context = room(policy, task.trainer.options, begun)
        sides.append(max(taken, default=0))
    usual, longest = sides
    left = context - max(recipe.max_tokens, evaluated(task).max_tokens)
    if longest <= left or usual > left:
        return ""
    return f"the longest prompt has {longest} tokens with it, the policy's context leaves {left} beside an answer"


# -- the base policy with a branch's scaffold alone --------------------------------------------------------------------


def measure_alone(ctx: RunContext, b: Branch, control: Branch, knobs: Mapping[str, Any] | None) -> None:
    """Evaluate the base policy, untrained, with the scaffolds of both sides of a verdict, where they differ."""
    base = ctx.state.base
    if not differ(b, control) or knobs is None or base is None:
        return
    for side in (b, control):
        trial, texts = base_trial(ctx.task, ctx.state, side.recipe.scaffold, knobs), side.recipe.scaffold
        if dict(texts) != dict(ctx.task.recipe.scaffold):
            ctx.run_trials([base_spec(ctx, trial, texts, "audit", *trial_specs.judged(ctx), knobs=knobs)])
        elif trial != keys.BASE_TRIAL:
            shortcut_audits.evaluations(ctx, BASE, [base], knobs)


def cert_specs(ctx: RunContext, champion: Branch | None, name: Callable[[str], str]) -> list[TrialSpec]:
    """The base policy on cert with the champion's texts, where these are others than the starting recipe's; `name`: the
    trial to use of what one was named first."""
    if champion is None or dict(champion.recipe.scaffold) == dict(ctx.task.recipe.scaffold):
        return []
    trial = keys.certification(keys.with_texts(keys.BASE_TRIAL, digest(champion.recipe.scaffold)))
    return [base_spec(ctx, name(trial), champion.recipe.scaffold, "certify", "cert")]


def base_spec(
    ctx: RunContext, trial: str, texts: Mapping[str, str], purpose: str, *splits: str, knobs: Any = None
) -> TrialSpec:
    """An evaluation of the base policy with other texts, under the starting recipe's protocol."""
    own = protocol(ctx.task, ctx.task.recipe, ctx.env_knobs).model_copy(update={"scaffold": dict(texts)})
    return trial_specs.spec_of(
        ctx,
        trial,
        None,
        0,
        purpose,
        protocol=own,
        policy_dir=trial_specs.base_dir(ctx),
        evals=trial_specs.plans(ctx, *splits),
        env_knobs=dict(knobs or {}),
    )

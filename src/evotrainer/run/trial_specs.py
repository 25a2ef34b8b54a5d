"""Specifications of a run's trials: trainings, evaluations of stored policies, and their common protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from evotrainer.config.bases import resolve_base
from evotrainer.executors.spec import EvalPlan, TrialSpec
from evotrainer.projections.branches import BASE, Branch, Probe
from evotrainer.records import keys
from evotrainer.rules.recipes import protocol
from evotrainer.run.context import RunContext


def plan_eval(ctx: RunContext, split: str) -> EvalPlan | None:
    """How a split is evaluated; None where the environment has none of that name."""
    if split not in ctx.state.environment.get("splits", {split: 1}):
        return None
    e = ctx.task.evaluation
    attempts, tasks = getattr(e, f"{split}_attempts"), getattr(e, f"{split}_tasks")
    plan = EvalPlan(split=split, attempts=attempts, tasks=tasks, greedy=e.greedy)
    opened = ctx.state.opened
    return plan.model_copy(update={"draw": opened.draw.seed}) if opened and plan.sealed else plan


def plans(ctx: RunContext, *splits: str) -> tuple[EvalPlan, ...]:
    """Evaluations on those of the splits that there are."""
    return tuple(p for s in splits if (p := plan_eval(ctx, s)))


def judged(ctx: RunContext) -> tuple[str, ...]:
    """Splits that a training is read on: what the agent may see, and what the judge decides by."""
    return ("search",) if ctx.task.run.search_only else ("search", "gate")


def base_spec(ctx: RunContext, *splits: str) -> TrialSpec:
    """The base policy's evaluation, and its SFT cold start where the task asks for one."""
    base = resolve_base(ctx.task.policy.base)
    return spec_of(
        ctx,
        keys.BASE_TRIAL,
        None,
        0,
        "base",
        protocol=protocol(ctx.task, ctx.task.recipe, ctx.env_knobs),
        policy_dir=str(base) if base else "",
        warm_start=None if base else ctx.task.policy.warm_start,
        evals=plans(ctx, *splits),
    )


def training(
    ctx: RunContext, b: Branch, seed: int, purpose: str = "branch", extra: Sequence[EvalPlan] = ()
) -> TrialSpec:
    """One training of a branch, evaluated on search, gate and `extra`."""
    evals = (*plans(ctx, *judged(ctx)), *extra)
    return _trained(ctx, b.branch, b, seed, purpose, evals, health_every=ctx.task.run.health_every)


def probe(ctx: RunContext, p: Probe) -> TrialSpec:
    """A search training: one seed, evaluated on search only."""
    return _trained(ctx, p.probe, p, p.seed, "probe", plans(ctx, "search"))


def _trained(
    ctx: RunContext, name: str, b: Branch | Probe, seed: int, purpose: str, evals: tuple[EvalPlan, ...], **more: Any
) -> TrialSpec:
    from evotrainer.harness import Harness

    h = ctx.harness.plain
    return spec_of(
        ctx,
        keys.training(name, seed),
        b,
        seed,
        purpose,
        train=True,
        policy_dir=base_dir(ctx),
        evals=evals,
        checkpoint_every=ctx.task.run.checkpoint_every,
        harness={} if h == Harness.default() else h.model_dump(mode="json"),
        cpu_limit_s=2 * ctx.task.budget.trial_cpu_s,
        **more,
    )


def evaluation(
    ctx: RunContext,
    trial: str,
    b: Branch | None,
    seed: int,
    policy: str,
    evals: Sequence[EvalPlan],
    purpose: str,
    knobs: Mapping[str, Any] | None = None,
) -> TrialSpec:
    """One evaluation of a stored policy; b: None for the base policy; knobs: in place of the protocol's."""
    # A policy of another step is another policy: only the repetition of an evaluation keeps the step of its trial's
    # specification, 0.
    step = b.recipe.whole_steps if b and (knobs or purpose != "audit") else 0
    return spec_of(
        ctx,
        trial,
        b,
        seed,
        purpose,
        policy_dir=policy,
        evals=tuple(evals),
        env_knobs=dict(knobs or {}),
        policy_step=step,
    )


def base_dir(ctx: RunContext) -> str:
    """Folder of the base policy, relative to the run folder where the run made it."""
    base = resolve_base(ctx.task.policy.base)
    assert base is not None or ctx.state.base is not None
    return str(base) if base else ctx.state.base.policy_path if ctx.state.base else ""


def spec_of(
    ctx: RunContext, trial: str, b: Branch | Probe | None, seed: int, purpose: str, *, train: bool = False, **more: Any
) -> TrialSpec:
    """The specification shared by all trials of the run, and `more`, which is this one's."""
    recipe = b.recipe if b else ctx.task.recipe
    sampler: Literal["fp32", "bf16"] = "fp32"
    if ctx.state.opened and ctx.state.opened.machine.get("sampler_dtype") == "bf16":
        sampler = "bf16"
    fields = {
        "run": ctx.folder.name,
        "trial": trial,
        "branch": BASE if b is None else b.probe if isinstance(b, Probe) else b.branch,
        "seed": seed,
        "purpose": purpose,
        "train": train,
        "recipe": recipe,
        "protocol": protocol(ctx.task, recipe, ctx.env_knobs),
        "environment": ctx.task.environment,
        "accept_tier_e": ctx.task.sandbox.accept_tier_e,
        "sampler_dtype": sampler,
        "trainer": ctx.task.trainer.name,
        "trainer_options": ctx.task.trainer.options,
        "key": ctx.sealed.key.id if ctx.sealed.key and any(p.sealed for p in more.get("evals", ())) else "",
    }
    return TrialSpec(**fields | more)

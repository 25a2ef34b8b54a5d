"""May this run train a change, and if not, why? The rules of every change (`factors/change_rules.py`), then those that
take the run to answer: what it can carry out, which shortcuts it knows, what it has tried, what it can pay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from evotrainer.agents.seat_trials import boolean, too_far
from evotrainer.errors import ConfigError
from evotrainer.executors import preflight_executor
from evotrainer.factors import change_rules
from evotrainer.factors.change_rules import ProposedChange
from evotrainer.projections.history import PresentSituation, repetition
from evotrainer.records.interventions import Intervention
from evotrainer.run import scaffolds, writing
from evotrainer.run.context import RunContext
from evotrainer.run.reserves import certification_trials, over_budget
from evotrainer.trainers import check_recipes


@dataclass(frozen=True)
class RequestedChange:
    """A change, and who wants it trained."""

    change: ProposedChange
    step: str
    """search: one seed, promotes nobody. proposal: a branch for the judge."""
    seat: bool = False
    """It comes from whoever sits: what is refused can be corrected."""
    intervention: Intervention | None = None
    """Of a proposal."""
    chosen: int = 0
    """Of a proposal: branches that the round has already."""


def change_of(ctx: RunContext, changes: Mapping[str, object]) -> ProposedChange:
    """These changes of the incumbent."""
    parent = ctx.branches[ctx.incumbent].recipe
    return ProposedChange(parent, changes, ctx.task.run.changes, ctx.state.environment)


def places(ctx: RunContext, a: RequestedChange) -> str:
    """The round has a place left."""
    most = ctx.task.run.branches
    return f"not among the first {most} of this round" if a.chosen >= most else ""


def of_all(ctx: RunContext, a: RequestedChange) -> str:
    """The rules of every change."""
    return change_rules.why_not(a.change)


def carried_out(ctx: RunContext, a: RequestedChange) -> str:
    """Trainer and executor can carry it out."""
    trainer = ctx.task.trainer
    check_recipes(trainer.name, trainer.options, [a.change.recipe])
    preflight_executor(ctx.task, [a.change.recipe])
    return ""


def tag(ctx: RunContext, a: RequestedChange) -> str:
    """The tag of its curriculum tells training tasks apart, not search tasks alone."""
    from evotrainer.envs import open_environment
    from evotrainer.trainers.curriculum import check_tag

    curriculum, task = a.change.recipe.curriculum, ctx.task
    if curriculum.tag and curriculum != a.change.parent.curriculum:
        opened = open_environment(task.environment, accept_tier_e=task.sandbox.accept_tier_e)
        with contextlib.closing(opened):
            check_tag(opened.tasks("train"), curriculum)
    return ""


def shortcuts(ctx: RunContext, a: RequestedChange) -> str:
    """It opens no shortcut that its parent has closed, nor does what it goes on from."""
    parent = a.change.parent
    known = {r.hash for r in parent.chain}
    new = [r for r in a.change.recipe.chain if r.hash not in known]
    found = next((c for r in new if (c := ctx.state.shortcuts.opened_by(parent.knobs, r.knobs))), None)
    return f"opens {found.name}, which honest training has no need of ({found.about})" if found else ""


def code(ctx: RunContext, a: RequestedChange) -> str:
    """Code that it holds passes the checks of a backtest; a proposal's is backtested anyway."""
    return writing.fault(ctx, a.change.recipe)


def texts(ctx: RunContext, a: RequestedChange) -> str:
    """Texts around the tasks that it writes are sound."""
    return scaffolds.why_not(ctx, a.change.recipe)


def tried(ctx: RunContext, a: RequestedChange) -> str:
    """It was not trained before, or something that it rested on has changed since."""
    iv = a.intervention
    for b in ctx.branches.values():
        if b.recipe.hash == a.change.recipe.hash:
            return f"this recipe was trained already as {b.branch}"
    return repetition(ctx.ledger.events(), iv, opened_now(ctx)) if iv else ""


def opened_now(ctx: RunContext) -> PresentSituation:
    """What a branch opened now would rest on."""
    return PresentSituation(
        recipe=ctx.branches[ctx.incumbent].recipe,
        closed=dict(ctx.state.closed),
        harness=ctx.harness.version,
        seeds=len(ctx.task.run.seeds),
    )


def budget(ctx: RunContext, a: RequestedChange) -> str:
    """The budget pays for it and its proof."""
    return too_dear(ctx, a.chosen)


def too_dear(ctx: RunContext, chosen: int) -> str:
    """Why the budget does not pay for one more branch and certification; empty where it does."""
    own, fresh = (chosen + 1) * len(ctx.task.run.seeds), len(ctx.task.run.certify_seeds)
    return over_budget(ctx, own + certification_trials(ctx), own + fresh)


def meant(ctx: RunContext, a: RequestedChange) -> str:
    """Somebody means it: no truth value for a number, no training that would be ended long before its last step, by
    what the champion's took."""
    champion, limit = ctx.branches[ctx.incumbent], 2 * ctx.task.budget.trial_cpu_s
    took = [t.training_s or t.computed_cpu_s for t in champion.complete]
    far = too_far(a.change.recipe, champion.recipe, sum(took) / len(took) if took else 0.0, limit)
    ends = f"{far}; a training is ended at {limit:,.0f} (twice budget.trial_cpu_s)" if far else ""
    return boolean(a.change.changes, a.change.recipe) or ends


WhyNot = Callable[[RunContext, RequestedChange], str]


class RunRule(NamedTuple):
    """A rule, and of which step it is asked; `seat`: of whoever sits, in any step."""

    why_not: WhyNot
    of: str


RULES = (
    RunRule(places, "proposal"),
    RunRule(of_all, "search proposal"),
    RunRule(carried_out, "search proposal"),
    RunRule(tag, "search proposal"),
    RunRule(shortcuts, "search proposal"),
    RunRule(code, "search"),
    RunRule(texts, "search proposal"),
    RunRule(tried, "proposal"),
    RunRule(budget, "proposal"),
    RunRule(meant, "seat"),
)


def why_not(ctx: RunContext, asked: RequestedChange) -> str:
    """Why the run would not train a change: the first rule's answer, with cause and remedy; empty where it would."""
    of = {asked.step} | ({"seat"} if asked.seat else set())
    try:
        return next(filter(None, (r.why_not(ctx, asked) for r in RULES if of & set(r.of.split()))), "")
    except ConfigError as e:
        return str(e)

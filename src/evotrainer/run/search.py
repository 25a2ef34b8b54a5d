"""Search trainings of a round: one seed, the search split, no verdict.
The agent says which, and when it knows enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import count
from math import inf

from evotrainer.agents.base import Searcher
from evotrainer.errors import AgentError
from evotrainer.records import keys
from evotrainer.records.events import ProbesOpened, Searched
from evotrainer.records.findings import HealthReport
from evotrainer.records.recipe import Recipe
from evotrainer.records.search import ProbePlan, ProbeSpec, SearchPlan
from evotrainer.rules.recipes import SHARES, continues
from evotrainer.run import propose, readings, trial_specs
from evotrainer.run.change_rules import RequestedChange, change_of, why_not
from evotrainer.run.context import RunContext
from evotrainer.run.reserves import (
    certification_trials,
    control_trials,
    half_of_round,
    over_budget,
    topup_trials,
)


def search(ctx: RunContext, n: int, health: HealthReport) -> None:
    """All search trainings of round `n`, batch by batch, until the agent stops or the round's share is used up."""
    if not searches(ctx):
        return
    ctx.observer.step("makes search trainings")
    tools = propose.agent_tools(ctx)
    for i in count():
        key, end = keys.probes(n, i), keys.searched(n)
        asked, specs = SearchPlan(), []
        if ctx.recorded(key) is None and ctx.recorded(end) is None:
            ctx.refresh()  # the agent sees all that is recorded, as in a run that was never killed
            asked = next_plan(ctx, n, health, tools)
            specs = open_probes(ctx, n, asked)
        if ctx.recorded(key) is None and not specs:
            why = asked.stop or "the budget holds no further search training next to the proof"
            body = ctx.record(end, Searched, partial(ended, ctx, n, asked, why))
            ctx.observer.note(f"{len(body.probes)} search trainings; {body.stop}")
            return
        opened = partial(
            ProbesOpened, round=n, index=i, incumbent=ctx.incumbent, probes=tuple(specs), choice=asked.choice
        )
        train(ctx, n, ctx.record(key, ProbesOpened, opened).probes)


def searches(ctx: RunContext) -> bool:
    """Does the task file allow search trainings, and does the agent know them?"""
    return bool(ctx.task.run.probes and isinstance(ctx.agent, Searcher))


def next_plan(ctx: RunContext, n: int, health: HealthReport, tools: propose.AgentTools) -> SearchPlan:
    """The agent's answer; AgentError where it asks for more at once than the round has left."""
    assert isinstance(ctx.agent, Searcher)
    briefing = propose.briefing(ctx, n, health)
    asked = ctx.agent.search(briefing, tools)
    if len(asked.probes) > briefing.probes_left:
        raise AgentError(
            f"agent {ctx.agent.name} asks for {len(asked.probes)} search trainings, {briefing.probes_left} are left; "
            "raise run.probes or correct the agent"
        )
    return asked


def open_probes(ctx: RunContext, n: int, asked: SearchPlan) -> list[ProbeSpec]:
    """Specifications of those that the budget pays; the proof's share is kept back."""
    out: list[ProbeSpec] = []
    for plan in asked.probes:
        recipe = recipe_of(ctx, plan)
        if too_dear(ctx, n, len(out) + 1, asked.expects):
            break
        number = len(ctx.state.probes) + len(out)
        out.append(
            ProbeSpec(
                probe=keys.probe(number + 1),
                changes=plan.changes,
                recipe=recipe,
                recipe_hash=recipe.hash,
                seed=known_seed(ctx, recipe, out) or seed_of(ctx, number),
                moves=plan.moves,
            )
        )
    return out


def recipe_of(ctx: RunContext, plan: ProbePlan) -> Recipe:
    """The champion's recipe with the changes; AgentError names what is wrong with them."""
    asked = RequestedChange(change_of(ctx, plan.changes), "search")
    if why := why_not(ctx, asked):
        raise AgentError(f"agent {ctx.agent.name} asks for a search training that is not valid: {why}")
    return asked.change.recipe


def known_seed(ctx: RunContext, recipe: Recipe, batch: Sequence[ProbeSpec]) -> int | None:
    """The seed of an earlier search training that holds what this one goes on from, so that only what follows has to be
    trained; None where there is none left. A seed has at most `SHARES` of them: the luck of one start must not speak
    for all."""
    probes = ctx.state.probes.values()
    seeds = Counter(p.seed for p in probes)
    taken = {p.seed for p in batch} | {p.seed for p in probes if p.recipe.hash == recipe.hash}
    known = {p.seed for p in probes if continues(recipe, p.recipe)} - taken
    return min((s for s in known if seeds[s] < SHARES), key=lambda s: (seeds[s], s), default=None)


def seed_of(ctx: RunContext, number: int) -> int:
    """The seed of search training `number`, from 0: none that a branch or certification uses."""
    run = ctx.task.run
    used = {*run.seeds, *run.certify_seeds}
    free = (s for s in count(run.search_seed) if s not in used)
    return next(s for i, s in enumerate(free) if i == number)


def too_dear(ctx: RunContext, n: int, more: int, expects: float) -> str:
    """Why the budget does not pay for `more` search trainings next to the proof of what the agent would propose by now,
    with the seeds that what it expects of it will want; empty where it does. In a run that proves nothing all of it is
    for the search."""
    if ctx.task.run.search_only:
        return over_budget(ctx, more, more)
    least, wanted = (proof_trials(ctx, gain) for gain in (inf, expects))
    # seeds beyond the first are kept as far as the search has its half
    proof = max(least, min(wanted, half_of_round(ctx, n)))
    return over_budget(ctx, more + proof, more + proof)


def proof_trials(ctx: RunContext, expects: float) -> int:
    """Trainings of the proof of a change that gains as much as is expected of it."""
    own = len(ctx.task.run.seeds) + topup_trials(ctx, expects)
    return own + control_trials(ctx) + certification_trials(ctx)


def train(ctx: RunContext, n: int, batch: Sequence[ProbeSpec]) -> None:
    """Train and read some search trainings."""
    probes = [ctx.state.probes[p.probe] for p in batch]
    ctx.run_trials([trial_specs.probe(ctx, p) for p in probes])
    for p in probes:
        readings.read(ctx, keys.reading(p.probe), n, p.probe)
        now = ctx.state.probes[p.probe].record()
        score = f"{100 * now.score:.1f}%" if now.score is not None else now.failed or "no score"
        doubt = f"; questioned by {', '.join(now.invalid)}" if now.invalid else ""
        ctx.observer.note(f"{p.probe} ({', '.join(p.changes) or 'no change'}): {score} on search{doubt}")


def ended(ctx: RunContext, n: int, asked: SearchPlan, stop: str) -> Searched:
    """Why the search ended, and what is believed of each change."""
    return Searched(
        round=n,
        probes=tuple(p.probe for p in ctx.state.probes.values() if p.round == n),
        stop=stop,
        effects=asked.effects,
        noise_sd=asked.noise_sd,
        trainings=asked.trainings,
        choice=asked.choice,
    )

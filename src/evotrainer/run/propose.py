"""Steps 5 to 7: briefing, proposal, backtest, and the branches that a round opens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from evotrainer.config.task import default_workers
from evotrainer.factors.payable import unpayable, usable
from evotrainer.projections.history import cases, changed_since
from evotrainer.projections.labels import label_of_refusal
from evotrainer.records import keys
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.events import Backtested, Planned, Proposed, Refused
from evotrainer.records.findings import HealthReport
from evotrainer.records.interventions import Backtest, Intervention
from evotrainer.records.recipe import short
from evotrainer.records.scaffold import slots_of
from evotrainer.rules.planned_seeds import threshold
from evotrainer.rules.reading_context import refused_code
from evotrainer.run import agent_edits, readings, skills, writing
from evotrainer.run.approvals import ask_human
from evotrainer.run.branches import open_branch
from evotrainer.run.change_rules import RequestedChange, change_of, opened_now, why_not
from evotrainer.run.context import RunContext
from evotrainer.run.reserves import (
    planned,
    provable_gain,
)

if TYPE_CHECKING:
    from evotrainer.records.rollout import Rollout

MAX_REVISIONS = 3
"""How often a human may send one step back."""


@dataclass(frozen=True)
class BacktestedProposal:
    """A round's proposal, and the part that its backtest did not contradict: (place in the proposal, intervention)."""

    proposal: Proposal
    candidates: tuple[tuple[int, Intervention], ...] = ()


def consider(ctx: RunContext, n: int, health: HealthReport) -> BacktestedProposal:
    """Steps 5 to 7, as often as a human sends them back (REVISE at the intervention or the backtest gate)."""
    tools = agent_tools(ctx)
    for k in range(MAX_REVISIONS + 1):
        proposal = propose(ctx, n, k, health, tools)
        agent_edits.edit(ctx, n, k, proposal)
        text = "\n".join(
            f"{i.factor}: {short(i.old)} -> {short(i.new)}  ({i.hypothesis})" for i in proposal.interventions
        )
        if not ask_human(ctx, n, "intervention", text or proposal.stop, k):
            continue
        considered = BacktestedProposal(proposal, tuple(backtest(ctx, n, k, proposal, tools)))
        text = "\n".join(f"{iv.factor}: {short(iv.old)} -> {short(iv.new)}" for _, iv in considered.candidates)
        if ask_human(ctx, n, "backtest", text or "the backtests contradict every proposal", k):
            return considered
    ctx.observer.note(f"round {n}: {MAX_REVISIONS} revisions were sent back; the round ends without a branch")
    return BacktestedProposal(Proposal(agent=ctx.agent.name, interventions=()))


# -- the agent -------------------------------------------------------------------------------------------------------


def propose(ctx: RunContext, n: int, k: int, health: HealthReport, tools: AgentTools) -> Proposal:
    """The agent's hypotheses as single-factor interventions; `k`: how often they were sent back."""
    ctx.observer.step("proposes changes")

    def proposed() -> Proposed:
        proposal = ctx.agent.propose(briefing(ctx, n, health, k), tools)
        quoted = [t.trial for t in ctx.branches[ctx.incumbent].complete if any(f.quotes for f in health.findings)]
        return Proposed(round=n, proposal=proposal, shown=tuple(sorted({*tools.served, *quoted})))

    return ctx.record(keys.proposed(n, k), Proposed, proposed).proposal


def briefing(ctx: RunContext, n: int, health: HealthReport, revision: int = 0) -> Briefing:
    """All that an agent is told of a round; nothing of gate or cert."""
    state, champion = ctx.state, ctx.branches[ctx.incumbent]
    done = [b for b in ctx.branches.values() if b.finished]
    costs = [ctx.cost(t) for b in done for t in b.complete]
    mean = {k: sum(c[k] for c in costs) / len(costs) for k in costs[0]} if costs else {}
    budget = ctx.budget()
    events, now = ctx.ledger.events(), opened_now(ctx)
    changed = {b.branch: changed_since(events, b.branch, now) for b in ctx.branches.values() if b.intervention}
    return Briefing(
        run=ctx.folder.name,
        round=n,
        task=ctx.task.task.about or ctx.task.task.name,
        champion=champion.record(),
        health=health,
        branches=tuple(b.record() for b in done),
        components=writing.components(ctx),
        written=writing.offers(ctx),
        unpayable=unpayable(state.environment),
        offers=usable(state.environment),
        knobs=state.shortcuts.offered(champion.recipe.knobs),
        slots=slots_of(state.environment),
        budget_left=budget.left(),
        notes={
            "workers": str(ctx.task.run.workers or default_workers()),
            "train_tasks": str(state.environment.get("splits", {}).get("train", "")),
            "revision": str(revision),
        },
        trial_cost=mean.get(budget.unit, 0.0),
        cost_unit=budget.unit,
        trial_cpu_s=mean.get("cpu_s", 0.0),
        failures_in_a_row=state.failures,
        branches_wanted=ctx.task.run.branches,
        feedback=state.feedback,
        skills=skills.advice(ctx, health),
        cases=tuple(cases(events, health)),
        promotion_threshold=threshold(ctx.task, ctx.state, len(ctx.task.run.seeds)),
        planned=planned(ctx),
        provable=provable_gain(ctx),
        probes=tuple(p.record() for p in state.probes.values()),
        probes_left=max(0, ctx.task.run.probes - sum(p.round == n for p in state.probes.values())),
        changes=ctx.task.run.changes,
        reopenable={name: since for name, since in changed.items() if since},
    )


def briefing_text(ctx: RunContext, n: int, health: HealthReport) -> str:
    """The briefing as markdown, for a human who decides in the agent's place or approves what it is told."""
    from evotrainer.agents.briefing import render

    return render(briefing(ctx, n, health))


class AgentTools:
    """What an agent may call while it thinks. It holds three functions and no run: no attribute leads to scores of gate
    or cert. (Who runs in this process could still look for them; an agent is trusted not to.)"""

    def __init__(
        self,
        backtest: Callable[[Intervention], Backtest],
        rollouts: Callable[[str, int], Iterable[tuple[str, Rollout]]],
        why_not: Callable[[Mapping[str, object]], str],
    ) -> None:
        self._backtest, self._rollouts, self.why_not = backtest, rollouts, why_not
        self.served: set[str] = set()
        """Trials whose rollouts the agent asked for."""

    def backtest(self, intervention: Intervention) -> Backtest:
        """Replay an intervention on the champion's stored rollouts."""
        return self._backtest(intervention)

    def rollouts(self, branch: str, limit: int = 100) -> Sequence[Rollout]:
        """Search rollouts of a branch, at most `limit`."""
        found = list(self._rollouts(branch, limit))
        self.served |= {trial for trial, _ in found}
        return [r for _, r in found]


def agent_tools(ctx: RunContext) -> AgentTools:
    """The tools of a round: replays on the incumbent's rollouts, search rollouts of any branch, the run's rules."""
    return AgentTools(
        partial(replay, ctx),
        partial(shown_rollouts, ctx),
        lambda changes: why_not(ctx, RequestedChange(change_of(ctx, changes), "search")),
    )


def replay(ctx: RunContext, intervention: Intervention) -> Backtest:
    """An intervention on the incumbent's stored rollouts."""
    from evotrainer.harness.whatif.backtest import backtest

    with writing.replay_context(ctx) as context:
        return backtest(intervention, ctx.branches[ctx.incumbent].recipe, readings.batch(ctx, ctx.incumbent), context)


def shown_rollouts(ctx: RunContext, branch: str, limit: int) -> list[tuple[str, Rollout]]:
    """What an agent is shown of a branch: its search rollouts, with what the harness wrote computed for them."""
    return writing.with_offers(ctx, branch, list(search_rollouts(ctx, branch, limit)))


def search_rollouts(ctx: RunContext, branch: str, limit: int) -> Iterator[tuple[str, Rollout]]:
    """(trial, rollout) of a branch's complete trainings, at most `limit`."""
    left = limit
    for t in ctx.branches[branch].complete:
        found = ctx.rollouts.search(t.trial)
        for r in found.rollouts(range(min(found.n, left))):
            left -= 1
            yield t.trial, r


# -- replays, and which branches are opened -------------------------------------------------------------------------


def backtest(
    ctx: RunContext, n: int, k: int, proposal: Proposal, tools: AgentTools
) -> Iterable[tuple[int, Intervention]]:
    """Replay every intervention on stored rollouts; a contradicted one is not trained."""
    ctx.observer.step("replays the proposals on stored rollouts")
    for i, iv in enumerate(proposal.interventions):

        def replayed(i: int = i, iv: Intervention = iv) -> Backtested:
            b = tools.backtest(iv)
            # a control arm without veto trains what the replay contradicts, but no code that its checks refuse
            vetoed = b.verdict == "contradicts" and (ctx.task.run.veto or refused_code(b))
            return Backtested(round=n, index=i, intervention=iv, backtest=b, vetoed=vetoed)

        if not ctx.record(keys.backtested(n, i, k), Backtested, replayed).vetoed:
            yield i, iv


def plan(ctx: RunContext, n: int, considered: BacktestedProposal) -> Planned:
    """Turn what is left into branches: single factor, lint-clean, not tried before, within the budget."""
    names: list[str] = []
    over_budget = False
    settled = ctx.recorded(keys.planned(n)) is not None
    for i, iv in considered.candidates:
        name = keys.branch(len(ctx.branches))
        known = ctx.recorded(keys.opened(name))
        opened = known is not None and known.body.intervention == iv
        refused = ctx.recorded(keys.refused(n, i)) is not None
        reason = "" if settled or opened or refused else refusal(ctx, iv, len(names))
        if refused or reason:
            body = ctx.record(
                keys.refused(n, i), Refused, partial(Refused, round=n, index=i, intervention=iv, reason=reason)
            )
            over_budget = over_budget or "budget" in body.reason
            if reason and label_of_refusal(reason) != "not_taken":
                ctx.observer.note(f"{iv.factor} = {short(iv.new)} is not trained: {reason}")
            continue
        recipe = ctx.branches[ctx.incumbent].recipe.with_factor(iv.factor, iv.new)
        open_branch(ctx, name, ctx.incumbent, n, recipe, iv)
        names.append(name)

    def planned() -> Planned:
        stop = considered.proposal.stop
        if not names and not stop:
            stop = "the budget holds no further branch" if over_budget else ""
        return Planned(round=n, branches=tuple(names), stop=stop)

    return ctx.record(keys.planned(n), Planned, planned)


def refusal(ctx: RunContext, iv: Intervention, chosen: int, seat: bool = False) -> str:
    """Why this intervention becomes no branch, empty where it may; `chosen`: branches the round has already."""
    return why_not(ctx, RequestedChange(change_of(ctx, {iv.factor: iv.new}), "proposal", seat, iv, chosen))

"""Kit for agents."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.agents.base import AgentWithSeat, Searcher
from evotrainer.agents.seat_trials import boolean, intervention, too_far
from evotrainer.factors import change_rules
from evotrainer.factors.change_rules import ProposedChange
from evotrainer.records.briefing import Briefing
from evotrainer.records.events import SeatAnswered, SeatAsked
from evotrainer.records.interventions import Backtest, Intervention
from evotrainer.records.search import ProbePlan
from evotrainer.records.seat import SeatBriefing, SeatTrial

if TYPE_CHECKING:
    from evotrainer.agents.base import Agent
    from evotrainer.records.rollout import Rollout


class NoTools:
    """Tools without a run: every backtest says nothing, there are no rollouts, nothing is refused."""

    def backtest(self, intervention: Intervention) -> Backtest:
        return Backtest(factor=intervention.factor, verdict="silent", reason="nothing stored")

    def rollouts(self, branch: str, limit: int = 100) -> Sequence[Rollout]:
        return ()

    def why_not(self, changes: Mapping[str, object]) -> str:
        return ""


class SeatMemory:
    """What a seat may know of its run, kept in memory: agents that ask others can be asked outside of a run."""

    hidden: tuple[Path, ...] = ()
    """There is no run whose files must not be in reach."""

    def __init__(self, folder: Path, briefing: Briefing) -> None:
        self.folder, self.briefing = folder, briefing
        self.events: dict[str, Any] = {}

    def asked(self, key: str, make: Callable[[], SeatAsked]) -> SeatAsked:
        found: SeatAsked = self.events.setdefault(key, make())
        return found

    def answered(self, key: str, make: Callable[[], SeatAnswered]) -> SeatAnswered:
        if key not in self.events:
            self.events[key] = make()
        found: SeatAnswered = self.events[key]
        return found

    def past(self) -> Sequence[SeatAnswered]:
        return [e for e in self.events.values() if isinstance(e, SeatAnswered)]

    def refusal(self, request: SeatBriefing, trial: SeatTrial) -> str:
        champion = self.briefing.champion
        try:
            if request.step == "proposal":
                return why_not_proposed(self.briefing, intervention(trial, champion.recipe, champion.branch))
        except ValueError as e:
            return " ".join(str(e).split())
        plan = ProbePlan(changes=dict(trial.changes))
        return why_not_searched(self.briefing, plan)

    def note(self, text: str) -> None:
        """Nobody watches."""


def check_agent(agent: Agent, briefing: Briefing, tools: Any = None) -> None:
    """Every proposal is one factor of the champion's recipe, passes the checks that a run makes before it trains, and
    says what would refute it. Of a `Searcher` search trainings are asked for, too, one at least. An agent that asks
    others (`AgentWithSeat`) is seated and asked for real: an answer must have been taken at the first attempt. Code of
    a recipe is read, not run."""
    with tempfile.TemporaryDirectory() as folder:
        log = SeatMemory(Path(folder), briefing)
        if isinstance(agent, AgentWithSeat):
            agent.sit(log)
        if isinstance(agent, Searcher):
            _check_search(agent, briefing, tools or NoTools())
        _check(agent, briefing, tools or NoTools())
        answers = log.past()
        assert answers or not isinstance(agent, AgentWithSeat), "nobody was asked: give the seat a share of 1"
        bad = [a.problem for a in answers if a.problem]
        assert not bad, f"an answer was not taken: {bad[0]}"


def _check_search(agent: Searcher, briefing: Briefing, tools: Any) -> None:
    asked = briefing.model_copy(update={"probes_left": max(1, briefing.probes_left)})
    plan = agent.search(asked, tools)
    assert plan.probes or plan.stop, "neither a search training nor a reason to stop"
    assert len(plan.probes) <= asked.probes_left, f"{len(plan.probes)} search trainings, {asked.probes_left} are left"
    for p in plan.probes:
        why = why_not_searched(asked, p)
        assert not why, f"search training of {', '.join(p.changes) or 'no change'}: {why}"


def _check(agent: Agent, briefing: Briefing, tools: Any) -> None:
    proposal = agent.propose(briefing, tools)
    assert proposal.agent, "a proposal names its agent"
    assert proposal.interventions or proposal.stop, "neither an intervention nor a reason to stop"
    hashes: set[str] = set()
    for iv in proposal.interventions:
        why = why_not_proposed(briefing, iv)
        assert not why, f"{iv.factor}: {why}"
        assert iv.hypothesis and iv.success_criterion and iv.rollback, (
            f"{iv.factor}: hypothesis, criterion and rollback"
        )
        child = briefing.champion.recipe.with_factor(iv.factor, iv.new)
        assert child.hash not in hashes, f"{iv.factor}: the same recipe twice in one proposal"
        hashes.add(child.hash)


# -- what a run says against a recipe, as far as a briefing tells ----------------------------------------------------


def why_not_proposed(briefing: Briefing, iv: Intervention) -> str:
    """Why a run would make no branch of an intervention; empty: nothing is against it."""
    change = _change(briefing, {iv.factor: iv.new})
    if why := change_rules.why_not(change):
        return why
    known = next((b.branch for b in briefing.branches if b.recipe.hash == change.recipe.hash), "")
    return f"this recipe was trained already as {known}" if known else _meant(briefing, change)


def why_not_searched(briefing: Briefing, plan: ProbePlan) -> str:
    """The same of a search training."""
    change = _change(briefing, plan.changes)
    return change_rules.why_not(change) or _meant(briefing, change)


def _change(briefing: Briefing, changes: Mapping[str, Any]) -> ProposedChange:
    """These changes of the champion, in the environment as far as a briefing describes it."""
    champion = briefing.champion.recipe
    # what the champion has of a knob, and the outcome, are not on offer and may stand in a recipe
    knobs: dict[str, tuple[Any, ...]] = {k: (v,) for k, v in champion.knobs.items()}
    knobs |= {k: (*v.split(", "), *knobs.get(k, ())) for k, v in briefing.knobs.items()}
    environment = {
        "name": "the environment",
        "components": briefing.components | dict.fromkeys(briefing.unpayable, ""),
        "knobs": knobs,
        "outcome": briefing.unpayable,
        "payable": ("references",) if "references" in briefing.offers else (),  # they are offered where some is
        "offers": briefing.offers,
        "demonstrations": "demonstrations" in briefing.offers,
        "slots": [s.model_dump() for s in briefing.slots],
    }
    return ProposedChange(champion, changes, briefing.changes, environment)


def _meant(briefing: Briefing, change: ProposedChange) -> str:
    left = briefing.budget_left.get("cpu_s", math.inf)
    far = too_far(change.recipe, change.parent, briefing.trial_cpu_s or briefing.trial_cost, left)
    return boolean(change.changes, change.recipe) or (f"{far}; {left:,.0f} are left of the budget" if far else "")

"""The agent `seat`: the statistical agent with a share of its places filled by whoever sits.

A language model alone does not beat a classical optimiser in such a search, one that overrides a third of its choices
does (arXiv 2603.24647), so the share is 0.3 by default; the statistical agent learns from all trainings, whoever named
them. Who sits is asked through one carrier and never believed: see `requester.py`.
"""

from __future__ import annotations

from evotrainer.agents.base import AgentSpec, Tools
from evotrainer.agents.carriers import CARRIERS
from evotrainer.agents.pooled import PooledAgent
from evotrainer.agents.seat.options import SeatOptions
from evotrainer.agents.seat.request import request, thoughts_of, thoughts_on
from evotrainer.agents.seat.requester import Requester, SeatLog
from evotrainer.agents.seat_trials import intervention
from evotrainer.agents.secrets import secrets_of
from evotrainer.errors import AgentError
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.search import ProbePlan, SearchPlan


class SeatAgent:
    """Deterministic but for the answers, which the ledger holds."""

    name = "seat"

    def __init__(self, seed: int, options: SeatOptions) -> None:
        self.options = options
        self.statistical = PooledAgent(seed, options.statistical)
        self.secrets = secrets_of(options)
        self.carrier = CARRIERS[options.carrier](options, self.secrets, False)
        self._requester: Requester | None = None

    def sit(self, log: SeatLog) -> None:
        """Take the seat of a run."""
        self._requester = Requester(self.carrier, self.options, self.secrets, log)

    @property
    def requester(self) -> Requester:
        if self._requester is None:
            raise AgentError("agent seat asks through a run's ledger; start it with run.agent=seat")
        return self._requester

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        """The statistical agent's next trainings, the seat's share of them replaced."""
        plan = self.statistical.search(briefing, tools)
        made = sum(p.round == briefing.round for p in briefing.probes)
        size = len(plan.probes) or (1 if self.options.share == 1 and briefing.probes_left > 0 else 0)
        if not (due := self.due(made, made + size)):
            return plan
        answer = self.requester.ask(request(briefing, "search", made, due, thoughts_of(plan), noise_sd=plan.noise_sd))
        if answer is None:
            return plan
        if answer.stop:
            alone = self.options.share == 1
            return plan.model_copy(update={"probes": (), "stop": answer.stop}) if alone else plan
        mine = tuple(ProbePlan(changes=dict(t.changes), gain=t.gain or 0.0, sd=t.sd or 0.0) for t in answer.trials)
        return plan.model_copy(update={"probes": plan.probes[: size - len(mine)] + mine, "stop": ""})

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        """The statistical agent's branches, the seat's share of the round's places replaced."""
        own = self.statistical.propose(briefing, tools).model_copy(update={"agent": self.name})
        wanted, n = briefing.branches_wanted, briefing.round
        if not (due := self.due(wanted * (n - 1), wanted * n)):
            return own
        sent_back = int(briefing.notes.get("revision", "0"))
        answer = self.requester.ask(request(briefing, "proposal", sent_back, due, thoughts_on(own)))
        if answer is None:
            return own
        if answer.stop:
            alone = self.options.share == 1
            return own.model_copy(update={"interventions": (), "stop": answer.stop}) if alone else own
        recipe, champion = briefing.champion.recipe, briefing.champion.branch
        mine = tuple(intervention(t, recipe, champion) for t in answer.trials)
        return own.model_copy(update={"interventions": own.interventions[: wanted - len(mine)] + mine, "stop": ""})

    def due(self, before: int, after: int) -> int:
        """Places of the seat among trainings number `before` to `after`: over many, its share of them."""
        return int(self.options.share * after + 0.5) - int(self.options.share * before + 0.5)


SPEC = AgentSpec(SeatAgent, SeatOptions)

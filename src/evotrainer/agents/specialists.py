"""Several agents in one search: each owns a part of the recipe, and the places of a search go to them in turn.

With a shared lineage each sees all trainings, may build on the best of anybody's, and one model learns from all of
them; what they found together is proposed as one bundle. Without it (a control arm) each knows the champion and its own
trainings alone, and proposes what it found itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evotrainer.agents.base import AgentSpec, Tools
from evotrainer.agents.bundles import Arm, Bundle, Search, recipe_of
from evotrainer.agents.moves import CandidateMove, Situation
from evotrainer.agents.one_factor import OneFactorAgent, Ranked
from evotrainer.agents.pooled import PooledAgent, PooledOptions, plan_of
from evotrainer.errors import ConfigError
from evotrainer.factors.roster import SPECIALISTS, AgentRow
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import Intervention
from evotrainer.records.search import ProbePlan, SearchChoice, SearchPlan
from evotrainer.records.seat import Candidate, SeatProposal

if TYPE_CHECKING:
    from evotrainer.agents.seat.agent import SeatAgent
    from evotrainer.agents.seat.desk import SeatLog


class SpecialistsOptions(PooledOptions):
    """Those of the statistical agent, and what `[[run.agents]]` and `run.lineage` say."""

    agents: tuple[AgentRow, ...] = ()
    lineage: bool = True

    @property
    def statistical(self) -> PooledOptions:
        return PooledOptions.model_validate({k: getattr(self, k) for k in PooledOptions.model_fields})


class OwnFactors(OneFactorAgent):
    """The one-factor agent among its own factors."""

    def __init__(self, seed: int, options: PooledOptions, row: AgentRow) -> None:
        super().__init__(seed, options)
        self.row = row

    def rank(self, briefing: Briefing, s: Situation) -> list[Ranked]:
        return [r for r in super().rank(briefing, s) if self.row.owns(r.candidate.factor)]


class Owner(PooledAgent):
    """A statistical agent that changes its own factors alone."""

    def __init__(self, seed: int, options: PooledOptions, row: AgentRow) -> None:
        super().__init__(seed, options)
        self.row, self.single = row, OwnFactors(seed, options, row)
        self._last: tuple[Any, Search] | None = None

    def _offered(self, briefing: Briefing, sit: Situation, tools: Tools) -> list[CandidateMove]:
        return [c for c in super()._offered(briefing, sit, tools) if self.row.owns(c.factor)]

    def _open(self, briefing: Briefing, tools: Tools) -> Search:
        """Asked in every step of the run, it has news only where a training of its own came in."""
        key = (briefing.round, briefing.champion.branch, [(p.probe, p.score, p.failed) for p in briefing.probes])
        if self._last is None or self._last[0] != key:
            self._last = key, super()._open(briefing, tools)
        return replace(self._last[1], briefing=briefing)

    def standing(self, briefing: Briefing, tools: Tools) -> tuple[float, SearchChoice]:
        """(expected gain, the recipe) that it would settle on."""
        s = self._open(briefing, tools)
        departs, bundle = self._incumbent(s, s.model.mean)
        return s.gain(bundle)[0], self._choice(briefing, departs)


@dataclass(slots=True)
class Member:
    """One agent of the roster."""

    row: AgentRow
    alone: Owner
    """What it is where it knows its own trainings only."""
    seat: SeatAgent | None = None
    """Who answers for it; None: the statistical agent."""


class Specialists(PooledAgent):
    """Deterministic but for the answers of carriers, which the ledger holds."""

    name = "specialists"

    def __init__(self, seed: int, options: SpecialistsOptions) -> None:
        super().__init__(seed, options.statistical)
        self.lineage = options.lineage
        rows = options.agents or SPECIALISTS
        self.members = [member(seed, i, row, options.statistical) for i, row in enumerate(rows)]
        self._by_role = {m.row.role: m for m in self.members}

    def sit(self, log: SeatLog) -> None:
        """Those that others answer for take their seats."""
        for m in self.members:
            if m.seat is not None:
                m.seat.sit(log)

    # -- search --------------------------------------------------------------------------------------------------------

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        """The next search trainings, the members' in turn."""
        return super().search(briefing, tools) if self.lineage else self._apart(briefing, tools)

    def _drawn(self, s: Search, rng: np.random.Generator, wanted: int) -> Iterator[ProbePlan]:
        """Each place is the next member's; one that has nothing new to try passes it on, and where all do, the one
        whose turn it is trains the best recipe by its draw under another seed."""
        known = {p.recipe.hash for p in s.briefing.probes}
        made = sum(p.round == s.briefing.round for p in s.briefing.probes)
        seed = int(rng.integers(2**32))
        for place in range(made, made + wanted):
            turn = self._turn(place)
            plan = next((p for m in turn if (p := self._of_member(m, s, seed, known, place))), None)
            if plan is None:
                departs, bundle = self._draw(s, rng, known)
                plan = self._told(plan_of(s, bundle, departs), bundle, turn[0].row)
            known.add(s.briefing.champion.recipe.with_changes(plan.changes).hash)
            yield plan

    def _of_member(self, m: Member, s: Search, seed: int, known: set[str], place: int) -> ProbePlan | None:
        """What a member would train next: whoever sits for it says, or a draw; None: nothing on its surface is new."""
        if (said := self._asked(m, s.briefing, s, place)) is not None:
            return said
        mine, rng = replace(s, own=m.row.owns), np.random.default_rng([seed, place, self.members.index(m)])
        departs, bundle = self._draw(mine, rng, known)
        champion = s.briefing.champion.recipe
        if recipe_of(champion, bundle).hash in {*known, champion.hash}:
            return None
        return self._told(plan_of(s, bundle, departs), bundle, m.row)

    def _told(self, plan: ProbePlan, bundle: Bundle, row: AgentRow) -> ProbePlan:
        """A plan with whose it is, and its hypothesis."""
        own = [a.candidate for a in bundle if row.owns(a.candidate.factor)]
        why = "; ".join(f"{c.factor}: {c.variant.why or c.move.why}" for c in own)
        return plan.model_copy(update={"by": row.role, "why": why or "the same recipe under another seed"})

    def _turn(self, place: int) -> list[Member]:
        """All members, that of this place first."""
        first = place % len(self.members)
        return self.members[first:] + self.members[:first]

    # -- who answers for a member --------------------------------------------------------------------------------------

    def _asked(self, m: Member, briefing: Briefing, s: Search, place: int) -> ProbePlan | None:
        """The training that whoever sits for a member names; None where the statistical agent names it."""
        from evotrainer.agents.seat.offers import merged

        if m.seat is None or not m.seat.due(done := self._places(m, briefing), done + 1):
            return None
        thoughts = [
            Candidate(changes={a.candidate.factor: a.candidate.variant.value}, mean=round(x, 4), sd=round(sd, 4))
            for a in sorted(s.arms, key=lambda a: (-s.gain((a,))[0], a.candidate.name))
            if m.row.owns(a.candidate.factor)
            for x, sd in [s.gain((a,))]
        ]
        answer = self._answer(m, briefing, "search", place, 1, thoughts)
        if answer is None or not answer.trials:
            return None
        t = answer.trials[0]
        mine = [p for p in briefing.probes if p.incumbent == briefing.champion.branch]
        return ProbePlan(
            changes=merged(t, mine), departs=t.departs, gain=t.gain or 0.0, sd=t.sd or 0.0, by=m.row.role, why=t.why
        )

    def _answer(
        self, m: Member, briefing: Briefing, step: str, number: int, places: int, thoughts: Sequence[Candidate]
    ) -> SeatProposal | None:
        from evotrainer.agents.seat.offers import request

        assert m.seat is not None
        return m.seat.desk.ask(request(briefing, step, number, places, thoughts, m.row))

    def _places(self, m: Member, briefing: Briefing) -> int:
        """Trainings of the round that a member has had."""
        return sum(p.by == m.row.role and p.round == briefing.round for p in briefing.probes)

    # -- without a lineage ---------------------------------------------------------------------------------------------

    def _apart(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        """The next trainings where nobody sees another's."""
        made = sum(p.round == briefing.round for p in briefing.probes)
        wanted = min(briefing.probes_left, int(briefing.notes.get("workers", "1")), len(self.members))
        found: list[ProbePlan] = []
        stop = "the round's search trainings are used up"
        for place in range(made, made + wanted):
            for m in self._turn(place):
                if any(p.by == m.row.role for p in found):
                    continue
                own = self.own_part(m, briefing)
                s = m.alone._open(own, tools)
                if (said := self._asked(m, own, s, place)) is not None:
                    found.append(said)
                    break
                plan = m.alone._next(s)
                if plan.probes:
                    found.append(self._told(plan.probes[0], s.arms_of(plan.probes[0].changes) or (), m.row))
                    break
                stop = plan.stop
        return SearchPlan(
            probes=tuple(found),
            stop="" if found else stop,
            noise_sd=self._noise(briefing, tools),
            trainings=len(briefing.probes) + len(briefing.champion.scores),
            choice=self._settled(briefing, tools),
            proposes=1,
        )

    def own_part(self, m: Member, briefing: Briefing) -> Briefing:
        """The briefing of a member that knows the champion and its own trainings alone."""
        roots = tuple(b for b in briefing.branches if b.parent is None or b.branch == briefing.champion.branch)
        probes = tuple(p for p in briefing.probes if p.by == m.row.role)
        return briefing.model_copy(
            update={
                "branches": roots,
                "cases": (),
                "probes": probes,
                "probes_left": -(-briefing.probes_left // len(self.members)),
                "notes": {**briefing.notes, "workers": "1"},
            }
        )

    def _settled(self, briefing: Briefing, tools: Tools) -> SearchChoice:
        """Of what the members would settle on, that of the largest expected gain."""
        known = [m.alone.standing(self.own_part(m, briefing), tools) for m in self.members]
        return max(known, key=lambda x: x[0])[1]

    def _noise(self, briefing: Briefing, tools: Tools) -> float:
        s = self.members[0].alone._open(self.own_part(self.members[0], briefing), tools)
        return round(s.model.noise_sd, 6)

    # -- proposal ------------------------------------------------------------------------------------------------------

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        """What all found together as one bundle; without a lineage what each found itself, the most promising first;
        without a search the members' own branches in turn."""
        if not briefing.probes:
            return self._by_turns(briefing, tools)
        if self.lineage:
            return super().propose(briefing, tools).model_copy(update={"agent": self.name})
        had = [m for m in self.members if any(p.by == m.row.role for p in briefing.probes)]
        found = [(m, m.alone.propose(self.own_part(m, briefing), tools)) for m in had]
        offers = [iv.model_copy(update={"by": m.row.role}) for m, p in found for iv in p.interventions[:1]]
        offers.sort(key=lambda iv: (-(iv.forecast.mean if iv.forecast else 0.0), iv.by))
        told = "\n".join(f"{m.row.role}: {p.reasoning or p.stop}" for m, p in found)
        stop = "" if offers else "; ".join(f"{m.row.role}: {p.stop}" for m, p in found)
        return Proposal(agent=self.name, interventions=tuple(offers), reasoning=told, stop=stop)

    def _intervention(self, s: Search, bundle: Sequence[Arm], forecast: Any) -> Intervention:
        iv = super()._intervention(s, bundle, forecast)
        roles = {m.row.role for m in self.members for a in bundle if m.row.owns(a.candidate.factor)}
        asked = {p.by for p in s.briefing.probes for a in bundle if a.candidate.factor in p.changes}
        return iv.model_copy(update={"by": "+".join(sorted(roles & asked or roles))})

    def _by_turns(self, briefing: Briefing, tools: Tools) -> Proposal:
        """Branches of a run without a search: each place is the next member's, who passes it on where it has none."""
        wanted, n = briefing.branches_wanted, briefing.round
        turn = [self._turn(k)[0] for k in range(wanted * (n - 1), wanted * n)]
        order = [*dict.fromkeys(m.row.role for m in turn), *(m.row.role for m in self._turn(wanted * n))]
        offers: list[Intervention] = []
        told: list[str] = []
        for m in (self._by_role[role] for role in dict.fromkeys(order)):
            share = max(1, sum(x is m for x in turn))
            if len(offers) >= wanted:
                break
            made = self._named(m, briefing, share)
            if not made:
                own = briefing if self.lineage else self.own_part(m, briefing)
                plan = m.alone.single.propose(own.model_copy(update={"branches_wanted": share}), tools)
                made = [iv.model_copy(update={"by": m.row.role}) for iv in plan.interventions[:share]]
                told.append(f"{m.row.role}: {plan.reasoning or plan.stop}")
            offers += made
        stop = "" if offers else "; ".join(told)
        return Proposal(agent=self.name, interventions=tuple(offers[:wanted]), reasoning="\n".join(told), stop=stop)

    def _named(self, m: Member, briefing: Briefing, places: int) -> list[Intervention]:
        """Branches that whoever sits for a member names."""
        from evotrainer.agents.seat.agent import intervention

        if m.seat is None or not places:
            return []
        revision = int(briefing.notes.get("revision", "0"))
        answer = self._answer(m, briefing, "proposal", revision, places, ())
        recipe, champion = briefing.champion.recipe, briefing.champion.branch
        made = [intervention(t, recipe, champion) for t in answer.trials] if answer else []
        return [iv.model_copy(update={"by": m.row.role}) for iv in made]


def member(seed: int, i: int, row: AgentRow, options: PooledOptions) -> Member:
    """A member of the roster; ConfigError for a surface that owns nothing, or a carrier's options that it does not
    take."""
    from pydantic import ValidationError

    from evotrainer.agents.seat.agent import SeatAgent
    from evotrainer.agents.seat.options import SeatOptions
    from evotrainer.records.frozen import explain

    if wrong := row.unknown():
        raise ConfigError(
            f"run.agents {row.role}: {wrong!r} is no surface and no factor; give surface = some of "
            f"{', '.join(r.role for r in SPECIALISTS)}, all, or factors"
        )
    seat = None
    if row.carrier != "statistical":
        try:
            told = {"share": 1.0, **options.model_dump(), **row.options, "carrier": row.carrier}
            seat = SeatAgent(seed, SeatOptions.model_validate(told))
        except ValidationError as e:
            raise ConfigError(f"run.agents {row.role}: {explain(e, SeatOptions)}") from None
    elif row.options:
        raise ConfigError(f"run.agents {row.role}: a statistical agent takes run.agent_options, not options of its own")
    return Member(row, Owner(seed + 7919 * (i + 1), options, row), seat)


SPEC = AgentSpec(Specialists, SpecialistsOptions)

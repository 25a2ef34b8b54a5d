"""What a run gives to whoever sits in its seat: a record of what is asked and answered, and its own rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evotrainer.agents.seat.agent import SeatAgent, intervention
from evotrainer.errors import AgentError
from evotrainer.records.events import SeatAnswered, SeatAsked
from evotrainer.records.search import ProbePlan
from evotrainer.records.seat import SeatBriefing, SeatTrial
from evotrainer.run import propose, search
from evotrainer.run.context import RunContext


def take_seat(ctx: RunContext) -> None:
    """Where the run's agent asks others, it asks through this run's ledger."""
    if isinstance(ctx.agent, SeatAgent):
        ctx.agent.sit(RunSeat(ctx))


class RunSeat:
    """`agents.seat.desk.SeatLog` of a run."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self.folder = ctx.folder / "seat"

    def asked(self, key: str, make: Callable[[], SeatAsked]) -> SeatAsked:
        return self._ctx.record(key, SeatAsked, make)

    def answered(self, key: str, make: Callable[[], SeatAnswered]) -> SeatAnswered:
        return self._ctx.record(key, SeatAnswered, make)

    def past(self) -> Sequence[SeatAnswered]:
        return [e.body for e in self._ctx.ledger.events("answered")]

    def refusal(self, request: SeatBriefing, trial: SeatTrial) -> str:
        """By the checks that the run makes of any agent's answer: it can be corrected before it costs a place."""
        ctx = self._ctx
        if request.step == "proposal":
            try:
                change = intervention(trial, ctx.branches[ctx.incumbent].recipe, ctx.incumbent)
            except ValueError as e:
                return " ".join(str(e).split())
            return propose.refusal(ctx, change, 0)
        try:
            search.recipe_of(ctx, ProbePlan(changes=trial.changes, departs=trial.departs))
        except AgentError as e:
            return str(e).partition(": ")[2] or str(e)
        return ""

    def note(self, text: str) -> None:
        self._ctx.observer.note(text)

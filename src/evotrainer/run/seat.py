"""What a run gives to whoever sits in its seat: a record of what is asked and answered, and its own rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from evotrainer.agents.base import AgentWithSeat
from evotrainer.agents.seat_trials import intervention
from evotrainer.errors import ConfigError
from evotrainer.executors.cache import cache_folder
from evotrainer.records.events import SeatAnswered, SeatAsked
from evotrainer.records.looks import register_file
from evotrainer.records.sealed import SealedSplits
from evotrainer.records.seat import SeatBriefing, SeatTrial
from evotrainer.run import propose
from evotrainer.run.change_rules import RequestedChange, change_of, why_not
from evotrainer.run.context import RunContext


def take_seat(ctx: RunContext) -> None:
    """Where the run's agent asks others, it asks through this run's ledger."""
    if isinstance(ctx.agent, AgentWithSeat):
        ctx.agent.sit(
            RunSeat(
                folder=ctx.folder / "seat",
                hidden=hidden(ctx),
                asked=lambda key, make: ctx.record(key, SeatAsked, make),
                answered=lambda key, make: ctx.record(key, SeatAnswered, make),
                past=lambda: [e.body for e in ctx.ledger.events("answered")],
                refusal=partial(refusal, ctx),
                note=lambda text: ctx.observer.note(text),
            )
        )


@dataclass
class RunSeat:
    """`agents.seat.requester.SeatLog` of a run."""

    folder: Path
    hidden: tuple[Path, ...]
    asked: Callable[[str, Callable[[], SeatAsked]], SeatAsked]
    answered: Callable[[str, Callable[[], SeatAnswered]], SeatAnswered]
    past: Callable[[], Sequence[SeatAnswered]]
    refusal: Callable[[SeatBriefing, SeatTrial], str]
    note: Callable[[str], None]


def hidden(ctx: RunContext) -> tuple[Path, ...]:
    """What no program in the seat may be shown: the run, keys, cached trainings, the files that its tasks are in."""
    places = (
        SealedSplits.keys_folder(ctx.task.run.keys),
        cache_folder(ctx.task.run.cache),
        register_file(ctx.task.run.looks),
    )
    files = ctx.state.environment.get("files", {})
    return (ctx.folder, *(p for p in places if p), *map(Path, files))


def refusal(ctx: RunContext, request: SeatBriefing, trial: SeatTrial) -> str:
    """By the rules that the run has for any agent's answer: it can be corrected before it costs a place."""
    parent = ctx.branches[ctx.incumbent].recipe
    try:
        if request.step == "proposal":
            return propose.refusal(ctx, intervention(trial, parent, ctx.incumbent), 0, seat=True)
        change = change_of(ctx, trial.changes)
    except (ValueError, ConfigError) as e:
        return " ".join(str(e).split())
    return why_not(ctx, RequestedChange(change, "search", seat=True))

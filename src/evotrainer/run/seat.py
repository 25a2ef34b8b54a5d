"""What a run gives to whoever sits in its seat: a record of what is asked and answered, and its own rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from evotrainer.agents.base import Sitter
from evotrainer.agents.seat_trials import boolean, intervention, too_far
from evotrainer.errors import AgentError, ConfigError
from evotrainer.executors.cache import cache_folder
from evotrainer.records.events import SeatAnswered, SeatAsked
from evotrainer.records.looks import register_file
from evotrainer.records.recipe import Recipe
from evotrainer.records.run_keys import keys_folder
from evotrainer.records.search import ProbePlan
from evotrainer.records.seat import SeatBriefing, SeatTrial
from evotrainer.run import propose, search
from evotrainer.run.context import RunContext
from evotrainer.run.opening import check_train_tag


def take_seat(ctx: RunContext) -> None:
    """Where the run's agent asks others, it asks through this run's ledger."""
    if isinstance(ctx.agent, Sitter):
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
    """`agents.seat.desk.SeatLog` of a run."""

    folder: Path
    hidden: tuple[Path, ...]
    asked: Callable[[str, Callable[[], SeatAsked]], SeatAsked]
    answered: Callable[[str, Callable[[], SeatAnswered]], SeatAnswered]
    past: Callable[[], Sequence[SeatAnswered]]
    refusal: Callable[[SeatBriefing, SeatTrial], str]
    note: Callable[[str], None]


def hidden(ctx: RunContext) -> tuple[Path, ...]:
    """What no program in the seat may be shown: the run, keys, cached trainings, the files that its tasks are in."""
    places = (keys_folder(ctx.task.run.keys), cache_folder(ctx.task.run.cache), register_file(ctx.task.run.looks))
    files = ctx.state.environment.get("files", {})
    return (ctx.folder, *(p for p in places if p), *map(Path, files))


def refusal(ctx: RunContext, request: SeatBriefing, trial: SeatTrial) -> str:
    """By the checks that the run makes of any agent's answer: it can be corrected before it costs a place."""
    if request.step == "proposal":
        parent = ctx.branches[ctx.incumbent].recipe
        try:
            change = intervention(trial, parent, ctx.incumbent)
        except ValueError as e:
            return " ".join(str(e).split())
        return propose.refusal(ctx, change, 0) or senseless(ctx, trial, parent.with_factor(change.factor, change.new))
    try:
        recipe = search.recipe_of(ctx, ProbePlan(changes=dict(trial.changes)))
        if recipe.curriculum.tag and recipe.curriculum != ctx.branches[ctx.incumbent].recipe.curriculum:
            check_train_tag(ctx.task, recipe)
    except AgentError as e:
        return str(e).partition(": ")[2] or str(e)
    except ConfigError as e:
        return str(e)
    return senseless(ctx, trial, recipe)


def senseless(ctx: RunContext, trial: SeatTrial, recipe: Recipe) -> str:
    """Why nobody means this recipe: true or false for a number, or a training that would be ended long before its last
    step, by what the champion's took."""
    champion, limit = ctx.branches[ctx.incumbent], 2 * ctx.task.budget.trial_cpu_s
    took = [t.training_s or t.computed_cpu_s for t in champion.complete]
    far = too_far(recipe, champion.recipe, sum(took) / len(took) if took else 0.0, limit)
    ends = f"{far}; a training is ended at {limit:,.0f} (twice budget.trial_cpu_s)" if far else ""
    return boolean(trial.changes, recipe) or ends

"""Checks a training that a seat asks for: turns it into an intervention, refuses values that nobody means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evotrainer.records.interventions import Forecast, Intervention, Prediction
from evotrainer.records.recipe import Recipe
from evotrainer.records.seat import SeatTrial

FAR = 10.0
"""Times the CPU-seconds that a training may take: what would take more is not begun. Cost grows with the rollouts, less
than they do: one that was seen took a quarter of what its number of rollouts promised."""


def intervention(t: SeatTrial, recipe: Recipe, champion: str) -> Intervention:
    """A trial that the seat asks for, as the run records a change."""
    ((factor, new),) = t.changes.items()
    forecast = Forecast(mean=t.gain, sd=t.sd, promote=t.promote) if t.gain is not None and t.sd is not None else None
    return Intervention(
        factor=factor,
        old=recipe.value(factor),
        new=new,
        hypothesis=t.why,
        prediction=Prediction(metric=t.metric, direction=t.direction, size=t.size),
        success_criterion=f"the judge's lower bound of the gate score over {champion} is above 0",
        rollback=f"keep {champion}",
        move="seat",
        forecast=forecast,
        reopens=t.reopens,
        changed=t.changed,
    )


def too_far(recipe: Recipe, champion: Recipe, took: float, most: float) -> str:
    """That a training would take `FAR` times `most` CPU-seconds, by the `took` of the champion's (0: not known); empty
    where it would not."""
    more = min(_rollouts(recipe), 10**30) / _rollouts(champion)
    if (need := more * took) <= FAR * most:
        return ""
    return f"it samples {more:,.0f} times what the champion samples, some {need:,.0f} CPU-s"


def _rollouts(recipe: Recipe) -> int:
    return sum(r.steps * r.prompts_per_step * r.group_size for r in recipe.chain)


def boolean(changes: Mapping[str, Any], recipe: Recipe) -> str:
    """That `true` or `false` is given for what the recipe reads as a number; empty: it is not."""
    found = ((f, b) for f, new in changes.items() if (b := _boolean(new, recipe.value(f))))
    return next((f"{f}: {b} is given for a number; give the number" for f, b in found), "")


def _boolean(given: Any, made: Any) -> str:
    if isinstance(given, Mapping) and isinstance(made, Mapping):
        return next((b for k, v in given.items() if (b := _boolean(v, made.get(k)))), "")
    if isinstance(given, list) and isinstance(made, list | tuple):
        return next((b for v, m in zip(given, made, strict=False) if (b := _boolean(v, m))), "")
    number = isinstance(made, int | float) and not isinstance(made, bool)
    return str(given).lower() if isinstance(given, bool) and number else ""

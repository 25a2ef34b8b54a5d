"""The noise floor: how much the same recipe's scores differ from seed to seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from evotrainer.errors import ConfigError
from evotrainer.judge import measure_noise, scores_of
from evotrainer.projections.branches import START
from evotrainer.records import keys
from evotrainer.records.events import NoiseMeasured
from evotrainer.run.context import RunContext


def first_noise(ctx: RunContext) -> NoiseMeasured:
    """From the A/A trials of the starting recipe alone. ConfigError where fewer than two are complete."""
    done = ctx.branches[START].complete
    if len(done) < 2:
        raise ConfigError(f"the noise floor needs at least 2 seeds, run.seeds has {len(done)}; add one")
    measured = partial(measure_noise, START, scores_of(done, "gate"), seeds_per_branch=len(ctx.task.run.seeds))
    return ctx.record(keys.noise("1"), NoiseMeasured, measured)


def widen_noise(ctx: RunContext, names: Sequence[str]) -> None:
    """Every branch's spread between seeds joins the noise measurement: more degrees of freedom for all."""
    seeds = len(ctx.task.run.seeds)
    for name in names:
        b = ctx.branches[name]
        scores = scores_of(b.complete, "gate")
        if len(scores) < 2:
            continue
        more = len(b.finished) if len(b.finished) > seeds else 0
        measured = partial(measure_noise, name, scores, seeds_per_branch=seeds, earlier=ctx.state.noise)
        ctx.record(keys.noise(name, more), NoiseMeasured, measured)

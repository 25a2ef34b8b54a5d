"""More seeds for undecided branches: which, for which branch, whether the budget pays; then they are judged again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from evotrainer.projections.branches import START, Branch
from evotrainer.records import keys
from evotrainer.records.events import ToppedUp
from evotrainer.rules.equal_compute import control_of
from evotrainer.rules.planned_seeds import unused_seeds
from evotrainer.rules.planned_seeds import wanted as seeds_before
from evotrainer.run import equal_compute, trial_specs
from evotrainer.run.context import RunContext
from evotrainer.run.noise import widen_noise
from evotrainer.run.reserves import certification_trials, over_budget


def train_requested_seeds(ctx: RunContext, n: int, names: Sequence[str], before: str) -> list[str]:
    """Train the seeds that the round's last verdicts ask for. Returns the branches to be judged
    again. `before`: the champion when the round was judged first."""
    given: list[ToppedUp] = []
    for name in names:
        b = ctx.branches[name]
        wanted = b.verdict.seeds_wanted if b.verdict else None
        if wanted is not None:
            asked = partial(offered, ctx, n, b, [wanted], before, given)
            body = ctx.record(keys.topup(name, b.looks + 1), ToppedUp, asked)
            if body.refused:
                ctx.observer.note(f"{name} stays undecided: {body.refused}")
            else:
                given.append(body)
    train(ctx, given)
    return [g.branch for g in given]


def plan(ctx: RunContext, n: int, names: Sequence[str]) -> None:
    """Train the seeds that branches want before they are judged first, as many of them as the budget pays for."""
    widen_noise(ctx, [x for x in names if not ctx.branches[x].looks])
    given: list[ToppedUp] = []
    for name in names:
        given_then = ctx.recorded(keys.topup(name, 1)) is not None
        judged_then = ctx.recorded(keys.judged(name, 1)) is not None  # without: it wanted none
        if not given_then and (judged_then or not seeds_before(ctx.task, ctx.state, name)):
            continue
        # what was given was given beside the control of then: a budget that was raised since opens no other
        if not given_then or ctx.recorded(keys.opened(keys.control(name))) is not None:
            match_compute(ctx, n, name)
        if not given_then and not seeds_before(ctx.task, ctx.state, name):
            continue
        b, most = ctx.branches[name], seeds_before(ctx.task, ctx.state, name)
        sides = range(most, len(b.complete), -1)
        asked = partial(offered, ctx, n, b, sides, ctx.champion, given)
        body = ctx.record(keys.topup(name, 1), ToppedUp, asked)
        if body.refused:
            ctx.observer.note(f"{name} is judged with the seeds it has: {body.refused}")
        else:
            given.append(body)
    train(ctx, given)


def match_compute(ctx: RunContext, n: int, name: str) -> None:
    """A branch that trained dearer than allowed is judged against its parent's recipe trained for as long: that control
    gets the seeds, not the parent."""
    if control_of(ctx.state, name) == (ctx.branches[name].parent or START):
        equal_compute.open_control(ctx, n, ctx.branches[name])
    equal_compute.train_control(ctx, n, name)


def offered(
    ctx: RunContext, n: int, b: Branch, sides: Sequence[int], before: str, given: Sequence[ToppedUp]
) -> ToppedUp:
    """The seeds that a branch and its control get: as many a side as the first of `sides` that nothing refuses."""
    control = ctx.branches[control_of(ctx.state, b.branch)]
    pending = pending_of(given, control.branch)
    seeds: tuple[tuple[int, ...], tuple[int, ...]] = (), ()
    refused = ""
    for k in sides:
        own = unused_seeds(ctx.task, b, k - len(b.complete))
        others = unused_seeds(ctx.task, control, k - len(control.complete) - len(pending), pending)
        refused = refusal(ctx, b, own, others, before, given)
        if not refused:
            seeds = own, others
            break
    return ToppedUp(
        round=n,
        branch=b.branch,
        control=control.branch,
        wanted=sides[0],
        seeds=seeds[0],
        control_seeds=seeds[1],
        refused=refused,
    )


def pending_of(given: Sequence[ToppedUp], control: str) -> list[int]:
    """Seeds that were given to a control and are not trained yet."""
    return [s for g in given if g.control == control for s in g.control_seeds]


def refusal(
    ctx: RunContext,
    b: Branch,
    own: Sequence[int],
    others: Sequence[int],
    before: str,
    given: Sequence[ToppedUp],
) -> str:
    """Why the seeds are not given; empty where they are."""
    most = ctx.task.judge.max_seeds
    if ctx.champion != before:
        return f"the champion of the round is {ctx.champion} already"
    if len(b.finished) + len(own) > most:
        return f"trainings failed, and with others in their place it would have more than judge.max_seeds={most}"
    trainings = sum(len(g.seeds) + len(g.control_seeds) for g in given) + len(own) + len(others)
    control = ctx.branches[control_of(ctx.state, b.branch)]
    side = max(len(b.finished) + len(own), len(control.finished) + len(others))
    return over_budget(ctx, trainings + certification_trials(ctx, side), trainings + len(ctx.task.run.certify_seeds))


def train(ctx: RunContext, given: Sequence[ToppedUp]) -> None:
    """All seeds that were given, side by side; they join their branches' trials."""
    asked = [(x, s) for g in given for x, ss in ((g.branch, g.seeds), (g.control, g.control_seeds)) for s in ss]
    if not asked:
        return
    seeds_text = ", ".join(f"{name}: {s}" for name, s in asked)
    ctx.observer.step(f"trains further seeds ({seeds_text})")
    ctx.run_trials([trial_specs.training(ctx, ctx.branches[name], s, "branch") for name, s in asked])
    widen_noise(ctx, list(dict.fromkeys(g.control for g in given if g.control_seeds)))

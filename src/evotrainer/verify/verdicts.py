"""The judge's claims, computed again from the ledger's own bodies: noise, verdicts, extra seeds,
branches and their recipes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evotrainer.errors import ConfigError, IntegrityError
from evotrainer.judge import (
    InterimAnalysis,
    measure_noise,
    next_looks,
    scores_of,
)
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.rules.equal_compute import control_of, steps_to_match
from evotrainer.rules.error_budget import alpha
from evotrainer.rules.judge_input import give_verdict
from evotrainer.rules.planned_seeds import unused_seeds, wanted
from evotrainer.rules.recipes import starting_recipe
from evotrainer.verify.report import Problem, Record, check_list, recomputed

if TYPE_CHECKING:
    from evotrainer.records.events import TrialFinished


# -- which trials there had to be --------------------------------------------------------------------------------------


def judged_trials(record: Record, branch: str, before: Event) -> list[str]:
    """Trials that a branch is judged by at an event: those of `run.seeds`, then the added seeds'."""
    seeds = list(record.task.run.seeds)
    for e in record.before(before, "topup"):
        seeds += e.body.seeds if e.body.branch == branch else ()
        seeds += e.body.control_seeds if e.body.control == branch else ()
    return [keys.training(branch, s) for s in dict.fromkeys(seeds)]


def unexplained(record: Record, branch: str, before: Event) -> list[str]:
    """A branch's finished trainings that are neither due nor certification's."""
    fresh = (keys.training(branch, s) for s in record.task.run.certify_seeds)
    names = {*judged_trials(record, branch, before), *fresh}
    done = [e.body for e in record.before(before, "finished") if e.body.branch == branch]
    return [t.trial for t in done if t.trial == keys.training(branch, t.seed) and t.trial not in names]


def complete(record: Record, names: list[str] | tuple[str, ...], before: Event) -> list[TrialFinished]:
    """The complete ones of some trials, as far as they had finished before an event."""
    done = {e.body.trial: e.body for e in record.before(before, "finished")}
    return [done[t] for t in names if t in done and done[t].status == "complete"]


# -- verdicts ----------------------------------------------------------------------------------------------------------


def verdict_on(record: Record, branch: str, look: int = 0) -> Event:
    """A branch's verdict by number, from 1; 0: the last one, which counts. ConfigError where there is none."""
    looks = [e for e in record.of("judged") if e.body.verdict.branch == branch]
    if not looks:
        known = ", ".join(sorted({e.body.verdict.branch for e in record.of("judged")})) or "none yet"
        raise ConfigError(f"no verdict on {branch!r} in {record.folder}; there are verdicts on: {known}")
    return looks[look - 1]


def recomputed_look(record: Record, event: Event) -> InterimAnalysis:
    """The interim analysis that was due, as the run's error budget gives it: from the verdicts before those it was
    looked at together with, and the number of these branches. IntegrityError where the ledger does not tell which look
    it is.
    """
    n, branch, before = event.body.round, event.body.verdict.branch, record.before(event)
    k, turns = 1, {}
    for e in before:
        if e.kind == "judged":
            turns[e.seq] = 1 + sum(1 for x in before[: e.seq - 1] if _verdict_on(x, e.body.verdict.branch))
            k += _verdict_on(e, branch)
    if k == 1:
        names = [b for e in before if e.kind == "planned" and e.body.round == n for b in e.body.branches]
    else:
        added = [e for e in before if e.kind == "topup" and e.body.round == n]
        asked = [e for e in added if e.id == keys.topup(e.body.branch, k)]
        names = [e.body.branch for e in asked if not e.body.refused]
    together = [s for s, k_ in turns.items() if (record.events[s - 1].body.round, k_) == (n, k)]
    if branch not in names or len(together) >= len(names):
        raise IntegrityError(f"{event.id}: analysis {k} of round {n} was of {names}, not of {branch}")
    earlier = [e.body.verdict for e in before if e.kind == "judged" and e.seq not in together]
    return next_looks(earlier, alpha(record.task, record.state), len(names))[len(together)]


def _verdict_on(event: Event, branch: str) -> bool:
    return event.kind == "judged" and event.body.verdict.branch == branch


def noise(record: Record, event: Event) -> Iterator[Problem]:
    """The noise floor, from the gate scores of the trainings it names and the measurement before."""
    state, branch = record.state_before(event), keys.noise_branch(event.id, event.body.branch)
    b = state.branches.get(branch)
    fresh = measure_noise(
        branch,
        scores_of(b.finished if b else (), "gate"),
        confidence=event.body.numbers.get("confidence", 0.95),
        seeds_per_branch=len(record.task.run.seeds),
        earlier=state.noise,
    )
    yield from recomputed(event, fresh)


def judged(record: Record, event: Event) -> Iterator[Problem]:
    """A verdict rests on all trials there had to be, and says what the judge says of them."""
    v = event.body.verdict
    both_sides = [t for x in (v.branch, v.control) for t in judged_trials(record, x, event)]
    yield from check_list("judged", event, "trials", event.body.trials, both_sides)
    for x in (v.branch, v.control):
        if more := unexplained(record, x, event):
            yield Problem("judged", f"{event.id}: {more[0]} was trained as well, and no event added its seed")
    fresh = give_verdict(
        record.task, record.state_before(event), event.body.round, v.branch, recomputed_look(record, event)
    )
    yield from recomputed(event, fresh, f" ({v.kind})")


def topup(record: Record, event: Event) -> Iterator[Problem]:
    """Seeds are added only where a verdict asked for so many, before the first where the expected gain did."""
    state = record.state_before(event)
    t, b = event.body, state.branches.get(event.body.branch)
    if b is not None and event.id == keys.topup(t.branch, 1):
        most = wanted(record.task, state, t.branch)
        if t.wanted != most or len(b.complete) + len(t.seeds) > most:
            yield Problem("topup", f"{event.id}: {t.wanted} seeds before the first look, {most} were to be had")
        yield from topup_sides(record, event)
    elif b is None or b.verdict is None or b.verdict.seeds_wanted != t.wanted:
        yield Problem("topup", f"{event.id}: no verdict on {t.branch} asks for {t.wanted} seeds")
    if t.refused and (t.seeds or t.control_seeds):
        yield Problem("topup", f"{event.id}: seeds are given and refused")


def topup_sides(record: Record, event: Event) -> Iterator[Problem]:
    """Seeds before the first look are the next ones, for the branch and for its control, as many on both sides."""
    t, state = event.body, record.state_before(event)
    if t.control != (control := control_of(state, t.branch)):
        yield Problem("topup", f"{event.id}: the control is {control}, not {t.control}")
        return
    b, c = state.branches[t.branch], state.branches[control]
    done = {x.seed for x in c.finished}
    before = (e.body for e in record.before(event, "topup") if e.body.control == control)
    pending = [s for x in before for s in x.control_seeds if s not in done]
    side = len(b.complete) + len(t.seeds)
    others = unused_seeds(record.task, c, side - len(c.complete) - len(pending) if t.seeds else 0, pending)
    if t.seeds != unused_seeds(record.task, b, len(t.seeds)) or t.control_seeds != others:
        yield Problem("topup", f"{event.id}: {t.seeds} and {t.control_seeds} are not the next seeds of both sides")


def opened(record: Record, event: Event) -> Iterator[Problem]:
    """A starting recipe is the task file's, with every confirmed shortcut closed;
    other branches passed their backtest."""
    b = event.body
    if b.parent is None:
        if b.recipe.hash != starting_recipe(record.task, record.state_before(event)).hash:
            yield Problem("branch", f"branch {b.branch}: its recipe is not the task file's starting recipe")
        return
    if b.matches:
        yield from control_opened(record, event)
        return
    tried = [e.body for e in record.before(event, "backtested") if e.body.round == b.round]
    if not any(t.intervention == b.intervention and not t.vetoed for t in tried):
        yield Problem("branch", f"branch {b.branch}: its change was not replayed before, or was vetoed")


def control_opened(record: Record, event: Event) -> Iterator[Problem]:
    """A control at equal compute is the parent's recipe, with the steps that the ratio of the trainings' costs asks
    for."""
    b, state = event.body, record.state_before(event)
    known = state.branches.get(b.matches)
    steps = steps_to_match(record.task, state, b.matches) if known else None
    if (
        known is None
        or known.parent is None
        or steps is None
        or (b.branch, b.parent) != (keys.control(b.matches), known.parent)
    ):
        yield Problem("branch", f"branch {b.branch}: {b.matches} needs no such control")
    elif b.recipe.hash != state.branches[known.parent].recipe.with_factor("steps", steps).hash:
        yield Problem("branch", f"branch {b.branch}: it has {b.recipe.steps} steps, {steps} match {b.matches}")

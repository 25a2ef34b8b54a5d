"""Folds a run's ledger into a `RunView`: its state, and what only readers are shown.

Gate and cert rollouts are never opened here; of those splits only means and the judge's effects appear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from evotrainer.errors import IntegrityError, StoreError
from evotrainer.projections.branches import BASE, Branch, Probe, Trial
from evotrainer.projections.budget import Budget
from evotrainer.projections.harness_lineage import Coevolution
from evotrainer.projections.predictions import outcomes, subject_branch
from evotrainer.projections.reader import Readings
from evotrainer.projections.run_facts import facts_of
from evotrainer.projections.seat import SeatSpend
from evotrainer.projections.state import RunState
from evotrainer.projections.text import rewritten
from evotrainer.records import events as ev
from evotrainer.records import keys
from evotrainer.records.answers import open_question, read_answer, waited_s
from evotrainer.records.chain import Event
from evotrainer.records.clock import unix_time
from evotrainer.records.durable import writer_of
from evotrainer.records.queued import is_answered, open_request
from evotrainer.records.recipe import diff
from evotrainer.records.scaffold import slots_of
from evotrainer.views.evidence import HealthReading, blind_rows, finding_rows, metric_rows, readings
from evotrainer.views.heartbeats import read_errors, read_heartbeats
from evotrainer.views.history import RunMemory
from evotrainer.views.model import TRAININGS, BranchView, RunView, TrialView
from evotrainer.views.rollout_samples import attach_rollouts
from evotrainer.views.rounds import rounds_of

LOCK = "ledger.db.lock"
"""Held by the process that runs a run."""


def load_view(run_folder: Path | str, rollouts: bool = True) -> RunView:
    """Read a run folder; StoreError where it holds no ledger. `rollouts=False` skips the rollout store."""
    from evotrainer.records.head import cut_off, read_head
    from evotrainer.records.ledger import Ledger

    folder = Path(run_folder)
    if not (folder / "ledger.db").exists():
        raise StoreError(f"no run in {folder}: ledger.db is missing; give the folder that `evotrainer run` wrote")
    noted = read_head(folder / "ledger.db")  # before the events, which only grow
    with Ledger.open(folder / "ledger.db", readonly=True) as ledger:
        events = list(ledger.events())
    if noted is not None and (problem := cut_off(noted, len(events))):
        raise IntegrityError(f"ledger {folder / 'ledger.db'}: {problem}; restore a copy of the run")
    beats = read_heartbeats(folder)
    view = view_of(events, beats, read_errors(folder))
    view.folder = folder
    if view.question is not None and read_answer(folder, view.question.id) is not None:
        view.question = None  # given, and taken as soon as somebody drives the run
    if view.request is not None and is_answered(folder, view.request):
        view.request = None
    if not view.closed:
        view.driver = writer_of(folder / LOCK)
        last = max([_seconds(events[-1]), *(float(b.get("time") or 0) for b in beats.values())]) if events else 0.0
        view.spent = _by_now(view, events, last if view.driver is None else unix_time())
    if rollouts:
        attach_rollouts(view, folder)
    return view


def view_of(
    events: Iterable[Event],
    heartbeats: Mapping[str, Mapping[str, Any]] | None = None,
    errors: Mapping[str, str] | None = None,
) -> RunView:
    """Events, in ledger order, as a view without rollouts."""
    seen = list(events)
    state = RunState.of(seen)
    view = RunView(folder=None, state=state, facts=facts_of(seen, state), event_count=len(seen))
    if seen:
        view.first_time, view.last_time, view.head = seen[0].time, seen[-1].time, seen[-1].hash
    view.question = None if view.closed else open_question(seen)
    if not view.closed and (asked := open_request(seen)) is not None and asked.body.carrier == "queue":
        view.request = asked
    view.rounds, view.noise = rounds_of(seen), _noise(seen)
    view.invalidated = [e.body for e in seen if isinstance(e.body, ev.Invalidated)]
    read: dict[str, list[HealthReading]] = {}
    for e in seen:
        if isinstance(e.body, ev.Diagnosed):
            health = e.body.health
            read.setdefault(subject_branch(health.subject), []).append(HealthReading.of(None, health))
    tests = {line.branch: line.backtest for r in view.rounds.values() for line in r.lines}
    ended, slots = outcomes(seen), slots_of(state.environment)
    known: dict[str, Branch | Probe | None] = {**state.branches, **state.probes}
    if BASE in read or any(t.branch == BASE for t in state.trials.values()):
        known = {BASE: None, **known}
    for name, of in known.items():
        b = BranchView(name, state, of, view.facts.of(name), backtest=tests.get(name), outcome=ended.get(name))
        own = [_trial(t, heartbeats or {}, errors or {}) for t in state.trials.values() if t.branch == name]
        b.trials = sorted(own, key=lambda t: (t.purpose not in TRAININGS, t.seed, t.id))
        parent = state.branches.get(of.parent or "") if of else None
        if of:
            b.recipe_diff = diff(parent.recipe, of.recipe) if parent else {}
            b.wrote = rewritten(parent.recipe if parent else None, of.recipe, slots)
        b.readings = readings(b.trials) + read.get(name, [])
        # what was read during training is shown with the learning curves
        b.metrics = metric_rows([r for r in b.readings if r.split != "train"] or b.readings)
        b.findings, b.blind = finding_rows(b.readings), blind_rows(b.readings)
        (view.probes if isinstance(of, Probe) else view.branches)[name] = b
    view.memory, view.coevolution = RunMemory.of(seen), Coevolution.of(seen)
    view.seat, view.reader = SeatSpend.of(e.body for e in seen if e.kind == "answered"), Readings.of(seen)
    view.spent = dict(Budget.from_events(seen, {}).spent)
    return view


def _trial(t: Trial, heartbeats: Mapping[str, Mapping[str, Any]], errors: Mapping[str, str]) -> TrialView:
    beat, error = ({}, "") if t.finished else (heartbeats.get(t.trial, {}), errors.get(t.trial, ""))
    return TrialView(t.trial, t.branch, t.seed, t.purpose or "branch", t.finished, beat, error)


def _noise(events: Iterable[Event]) -> list[ev.NoiseMeasured]:
    """Each measurement with the branch that joined it."""
    out: list[ev.NoiseMeasured] = []
    for e in events:
        if isinstance(e.body, ev.NoiseMeasured):
            # more seeds of branches that are in it already take the place of the last one
            again = keys.remeasured(e.id) and len(out) > 1
            joined = out.pop().branch if again else keys.noise_branch(e.id, e.body.branch)
            out.append(e.body.model_copy(update={"branch": joined}))
    return out


def _seconds(event: Event) -> float:
    return datetime.fromisoformat(event.time).timestamp()


def _by_now(view: RunView, events: Sequence[Event], now: float) -> dict[str, float]:
    """What an unfinished run has spent until `now`, as its budget counts it: with the CPU time of trials that have not
    ended, as their heartbeats tell it, and the time since they began, the last one ended, or
    the run was taken up again. Where the whole session, but for what a human was waited for, took longer it is that,
    as in the event that closes the run."""
    running = {t.id: t.cpu_s for t in view.trials if not t.finished and t.heartbeat}
    gpu_s = sum(float(t.heartbeat.get("gpu_s") or 0) for t in view.trials if t.id in running)
    begun = [_seconds(e) for e in events if isinstance(e.body, ev.TrialIntended) and e.body.trial in running]
    ended = [_seconds(e) for e in events if isinstance(e.body, ev.TrialFinished)]
    taken_up = [_seconds(e) for e in events if isinstance(e.body, ev.Resumed)]
    more = max(0.0, now - max([min(begun), *ended[-1:], *taken_up[-1:]])) if begun else 0.0
    since = max([*map(_seconds, events[:1]), *taken_up], default=now)
    spent, session = view.spent, now - since - waited_s(events, since, now)
    return spent | {
        "cpu_s": spent["cpu_s"] + sum(running.values()),
        "gpu_s": spent["gpu_s"] + gpu_s,
        "wall_s": max(spent["wall_s"] + more, session),
    }

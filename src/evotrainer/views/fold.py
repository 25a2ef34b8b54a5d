"""A run's ledger folded into a `RunView`: one pass over the events, then what needs them all.

Gate and cert rollouts are never opened here; of those splits only means and the judge's effects appear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from evotrainer.errors import IntegrityError, StoreError
from evotrainer.projections.branches import went_on
from evotrainer.projections.budget import Budget
from evotrainer.projections.caveats import caveats
from evotrainer.projections.predictions import outcomes, subject_branch
from evotrainer.projections.reader import Readings
from evotrainer.projections.seat import SeatSpend
from evotrainer.projections.state import RunState
from evotrainer.records import events as ev
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.clock import unix_time
from evotrainer.records.durable import writer_of
from evotrainer.records.interventions import Intervention
from evotrainer.records.recipe import diff
from evotrainer.records.scaffold import slots_of
from evotrainer.views.coevolution import Coevolution
from evotrainer.views.evidence import (
    HealthReading,
    blind_rows,
    finding_rows,
    metric_rows,
    readings,
)
from evotrainer.views.heartbeats import read_errors, read_heartbeats
from evotrainer.views.history import RunMemory
from evotrainer.views.model import TRAININGS, BranchView, ProposalLine, RoundView, RunView, TrialView
from evotrainer.views.rollout_samples import attach_rollouts
from evotrainer.views.text import written_anew

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
    fold = _Fold(RunState.of(seen), heartbeats or {}, errors or {})
    for e in seen:
        fold.take(e)
    view = fold.view
    fold.conclude()
    for name, outcome in outcomes(seen).items():
        view.branches[name].outcome = outcome
    view.caveats = caveats(seen)
    for name, facts in view.caveats.items():
        worst = facts[0] if facts[0].severity == "critical" else None
        view.branches[name].no_better = worst.text.partition(":")[0] if worst else ""
    view.memory = RunMemory.of(seen)
    view.coevolution = Coevolution.of(seen)
    view.seat = SeatSpend.of(e.body for e in seen if e.kind == "answered")
    view.reader = Readings.of(seen)
    view.spent = dict(Budget.from_events(seen, {}).spent)
    return view


def _seconds(event: Event) -> float:
    return datetime.fromisoformat(event.time).timestamp()


def _by_now(view: RunView, events: Sequence[Event], now: float) -> dict[str, float]:
    """What an unfinished run has spent until `now`, as its budget counts it: with the CPU time of trials that have not
    ended, as their heartbeats tell it, and the time since they began, the last one ended, or
    the run was taken up again. Where the whole session took longer it is that, as in the event that closes the run."""
    running = {t.id: t.cpu_s for t in view.trials if not t.finished and t.heartbeat}
    begun = [_seconds(e) for e in events if isinstance(e.body, ev.TrialIntended) and e.body.trial in running]
    ended = [_seconds(e) for e in events if isinstance(e.body, ev.TrialFinished)]
    taken_up = [_seconds(e) for e in events if isinstance(e.body, ev.Resumed)]
    more = max(0.0, now - max([min(begun), *ended[-1:], *taken_up[-1:]])) if begun else 0.0
    spent, session = view.spent, now - max([*map(_seconds, events[:1]), *taken_up], default=now)
    return spent | {"cpu_s": spent["cpu_s"] + sum(running.values()), "wall_s": max(spent["wall_s"] + more, session)}


class _Fold:
    """Takes what only readers are shown, one event after the other, into a view; what the run itself knows is the
    state's."""

    def __init__(self, state: RunState, heartbeats: Mapping[str, Mapping[str, Any]], errors: Mapping[str, str]) -> None:
        self.view = RunView(folder=None, state=state)
        self.heartbeats, self.errors = heartbeats, errors

    def take(self, e: Event) -> None:
        self.view.first_time = e.time if self.view.event_count == 0 else self.view.first_time
        self.view.last_time, self.view.head = e.time, e.hash
        self.view.event_count += 1
        body = e.body
        match body:
            case ev.BranchOpened():
                self._open_branch(body)
            case ev.TrialIntended():
                self._intend(body)
            case ev.TrialFinished():
                self._finish(body)
            case ev.NoiseMeasured():
                # more seeds of branches that are in it already take the place of the last one
                again = keys.measured_anew(e.id) and len(self.view.noise) > 1
                joined = self.view.noise.pop().branch if again else keys.noise_branch(e.id, body.branch)
                self.view.noise.append(body.model_copy(update={"branch": joined}))
            case ev.Judged():
                self._round(body.round).judged.append(body.verdict)
            case ev.ToppedUp():
                self._branch(body.branch).topups.append(body)
            case ev.Reestimated():
                self._branch(body.branch).fresh = body
            case ev.Promoted():
                if body.previous is not None:
                    before = self.view.branch_of(body.previous)
                    self._branch(body.branch).replaced = before
                    self._branch(before).replaced_by = body.branch
                if self.view.rounds:
                    self.view.rounds[max(self.view.rounds)].promoted.append(body)
            case ev.Invalidated():
                self.view.invalidated.append(body)
            case ev.Diagnosed():
                self._read(e.id, body)
            case _:
                self._take_round(body)

    def _take_round(self, body: Any) -> None:
        match body:
            case ev.RoundOpened():
                self._round(body.round).opened = body
            case ev.Planned():
                self._round(body.round).stop = body.stop
            case ev.Proposed():
                r = self._round(body.round)
                r.proposed = body
                r.lines.extend(ProposalLine(i) for i in body.proposal.interventions)
            case ev.Backtested():
                line = self._line(body.round, body.intervention)
                line.backtest = body
                if body.vetoed:
                    line.fate, line.reason = "vetoed", body.backtest.reason
            case ev.Refused():
                line = self._line(body.round, body.intervention)
                line.fate, line.reason = "refused", body.reason
            case ev.HumanApproval():
                self._round(body.round).gates.append(body)
                if body.where == "verdict" and body.answer == "REVISE" and body.branch:
                    self._branch(body.branch).withheld = body
            case ev.Escalated():
                self._round(body.round).escalated.append(body)

    def _read(self, id: str, body: ev.Diagnosed) -> None:
        """A reading of a branch; `r<n>/diagnosed` is also the round's diagnosis."""
        self._branch(subject_branch(body.health.subject)).readings.append(HealthReading.of(None, body.health))
        if id == keys.diagnosed(body.round):
            self._round(body.round).diagnosed = body

    def _round(self, n: int) -> RoundView:
        return self.view.rounds.setdefault(n, RoundView(n))

    def _line(self, n: int, intervention: Intervention) -> ProposalLine:
        """The proposal's line of this intervention; a revised one that was never listed gets a line of its own."""
        lines = self._round(n).lines
        for line in reversed(lines):
            if line.intervention == intervention:
                return line
        lines.append(ProposalLine(intervention))
        return lines[-1]

    def _branch(self, name: str) -> BranchView:
        """The named branch; one that was never opened (the base policy) is a branch without recipe."""
        return self.view.branches.setdefault(name, BranchView(name, None, 0, None))

    def _open_branch(self, body: ev.BranchOpened) -> None:
        old = self.view.branches.pop(body.branch, None)
        b = BranchView(
            body.branch,
            self.view.branch_of(body.parent) if body.parent else None,
            body.round,
            body.recipe,
            body.recipe_hash,
            body.intervention,
            matches=body.matches,
            trials=old.trials if old else [],
            readings=old.readings if old else [],
        )
        self.view.branches[body.branch] = b
        parent = self.view.branches.get(b.parent or "")
        if parent and parent.recipe:
            b.recipe_diff = diff(parent.recipe, body.recipe)
        if body.intervention:
            line = self._line(body.round, body.intervention)
            line.fate, line.branch = "branch", body.branch
            b.backtest = line.backtest

    def _intend(self, body: ev.TrialIntended) -> None:
        b = self._branch(body.branch)
        if all(t.id != body.trial for t in b.trials):
            beat, error = self.heartbeats.get(body.trial, {}), self.errors.get(body.trial, "")
            b.trials.append(
                TrialView(body.trial, body.branch, body.seed, body.purpose, body.reserve_cpu_s, None, beat, error)
            )

    def _finish(self, body: ev.TrialFinished) -> None:
        b = self._branch(body.branch)
        old = next((t for t in b.trials if t.id == body.trial), None)
        purpose, reserve = (old.purpose, old.reserve_cpu_s) if old else ("branch", 0.0)
        b.trials = [t for t in b.trials if t.id != body.trial]
        b.trials.append(TrialView(body.trial, body.branch, body.seed, purpose, reserve, body))
        b.trials.sort(key=lambda t: (t.purpose not in TRAININGS, t.seed, t.id))

    def conclude(self) -> None:
        """Complete what needs all events."""
        for p in self.view.state.probes.values():
            if b := self.view.branches.pop(p.probe, None):
                b.parent, b.round, b.recipe, b.recipe_hash = p.incumbent, p.round, p.recipe, p.recipe.hash
                if incumbent := self.view.state.branches.get(p.incumbent):
                    b.recipe_diff = diff(incumbent.recipe, p.recipe)
                self.view.probes[p.probe] = b
        slots = slots_of(self.view.state.environment)
        self.view.branches = dict(sorted(self.view.branches.items(), key=lambda kv: kv[1].recipe is not None))
        for b in (*self.view.branches.values(), *self.view.probes.values()):
            parent = self.view.branches.get(b.parent or "")
            b.wrote = written_anew(parent.recipe if parent else None, b.recipe, slots) if b.recipe else []
            b.invalid = self.view.state.invalid.get(b.name)
            b.went_on = went_on(self.view.state.branches, b.recipe) if b.recipe else ""
            b.audits = [a for a in self.view.state.audits if a.branch == b.name]
            if known := self.view.state.branches.get(b.name):
                b.looks, b.verdict, b.version = list(known.verdicts), known.verdict, known.version
            b.readings = readings(b.trials) + b.readings
            # what was read during training is shown with the learning curves
            b.metrics = metric_rows([r for r in b.readings if r.split != "train"] or b.readings)
            b.findings, b.blind = finding_rows(b.readings), blind_rows(b.readings)

"""What a run folder says, arranged for readers: the one source of the report, the terminal views and `show`.

Built from ledger events, heartbeats of unfinished trials and selected train/search rollouts. Gate and cert rollouts are
never opened here; of those splits only means and the judge's effects appear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evotrainer.errors import StoreError
from evotrainer.projections.budget import Budget
from evotrainer.projections.caveats import Caveat, caveats, told
from evotrainer.records import events as ev
from evotrainer.records.chain import Event
from evotrainer.records.evidence import Audit, Effect, Finding, Intervention, Verdict
from evotrainer.records.recipe import Recipe, diff
from evotrainer.records.rollout import Rollout
from evotrainer.views.coevolution import Coevolution
from evotrainer.views.evidence import (
    FindingRow,
    MetricRow,
    Outcome,
    Reading,
    blind_rows,
    finding_rows,
    metric_rows,
    outcome_of,
    readings,
    subject_branch,
)
from evotrainer.views.heartbeats import read_heartbeats
from evotrainer.views.recall import Recall
from evotrainer.views.rounds import ProposalLine as ProposalLine
from evotrainer.views.rounds import RoundView as RoundView

TRAININGS = ("base", "noise", "branch")
"""Purposes of the trials that say how good a branch is; the others re-read or certify."""


@dataclass(frozen=True, slots=True)
class TrialView:
    """One seeded training, finished or not."""

    id: str
    branch: str
    seed: int
    purpose: str
    reserve_cpu_s: float
    finished: ev.TrialFinished | None = None
    heartbeat: Mapping[str, Any] = field(default_factory=dict)
    """Last sign of life of an unfinished trial: step, steps, phase, cpu_s, pid, time."""

    @property
    def status(self) -> str:
        """complete, failed, started (heartbeat, no result) or waiting."""
        if self.finished:
            return self.finished.status
        return "started" if self.heartbeat else "waiting"

    @property
    def cpu_s(self) -> float:
        return self.finished.cpu_s if self.finished else float(self.heartbeat.get("cpu_s", 0) or 0)

    def score(self, split: str) -> ev.SplitScore | None:
        """Scores on a split at the last evaluated step."""
        rows = [s for s in self.finished.scores if s.split == split] if self.finished else []
        return max(rows, key=lambda s: s.step) if rows else None


@dataclass(slots=True)
class BranchView:
    """A branch with everything that was written down about it."""

    name: str
    parent: str | None
    round: int
    recipe: Recipe | None
    recipe_hash: str = ""
    intervention: Intervention | None = None
    trials: list[TrialView] = field(default_factory=list)
    verdict: Verdict | None = None
    """The last look's, which counts."""
    looks: list[Verdict] = field(default_factory=list)
    """Every look's verdict, in order."""
    topups: list[ev.ToppedUp] = field(default_factory=list)
    fresh: ev.Reestimated | None = None
    """Measured again on fresh seeds."""
    backtest: ev.Backtested | None = None
    version: str | None = None
    invalidated: ev.Invalidated | None = None
    audits: list[Audit] = field(default_factory=list)
    """Counterfactual audits, in order."""
    withheld: ev.HumanGate | None = None
    """The human's REVISE that kept a passing branch from being promoted."""
    readings: list[Reading] = field(default_factory=list)
    metrics: list[MetricRow] = field(default_factory=list)
    findings: list[FindingRow] = field(default_factory=list)
    blind: list[tuple[str, Finding]] = field(default_factory=list)
    """Detectors that could not look, and where."""
    outcome: Outcome | None = None
    """What became of the prediction."""
    recipe_diff: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    samples: list[tuple[str, str]] = field(default_factory=list)
    """(rollout id, why it was picked)"""

    @property
    def effect(self) -> Effect | None:
        """The effect on gate: on fresh seeds where it was measured again, otherwise as the verdict saw it."""
        if self.fresh:
            return self.fresh.effect
        return self.verdict.effect if self.verdict else None

    @property
    def at_selection(self) -> Effect | None:
        """The effect that the branch was chosen by, where another one was measured since."""
        return self.fresh.selected if self.fresh else None

    @property
    def standing(self) -> str:
        """base, start, promote, withheld (by a human), reject, invalid, inconclusive, failed or open (no verdict yet)."""
        if self.recipe is None:
            return "base"
        if self.invalidated:
            return "invalid"
        if self.withheld:
            return "withheld"
        if self.verdict:
            return self.verdict.kind
        return "start" if self.intervention is None else "open"

    @property
    def cpu_s(self) -> float:
        return sum(t.cpu_s for t in self.trials)

    def mean(self, split: str, component: str | None = None) -> float | None:
        """Mean over the branch's own trials of the score, or of one reward component, on a split."""
        rows = [s for t in self.trials if t.purpose in TRAININGS and (s := t.score(split))]
        values = [s.score if component is None else s.components.get(component) for s in rows]
        seen = [v for v in values if v is not None]
        return sum(seen) / len(seen) if seen else None


@dataclass(slots=True)
class RunView:
    """A whole run, also an unfinished one (`closed` is None then)."""

    folder: Path | None
    opened: ev.RunOpened | None = None
    branches: dict[str, BranchView] = field(default_factory=dict)
    rounds: dict[int, RoundView] = field(default_factory=dict)
    noise: list[ev.NoiseMeasured] = field(default_factory=list)
    versions: list[ev.Promoted] = field(default_factory=list)
    invalidated: list[ev.Invalidated] = field(default_factory=list)
    certified: ev.Certified | None = None
    caveats: dict[str, tuple[Caveat, ...]] = field(default_factory=dict)
    """Certified branch -> what stands beside its certificate."""
    closed: ev.RunClosed | None = None
    champion: str = ""
    """Branch name of the current champion."""
    rollouts: dict[str, Rollout] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    """What could not be read, in words."""
    spent: dict[str, float] = field(default_factory=dict)
    """Kind of budget -> amount, as `records.budget` counts it."""
    first_time: Any = None
    last_time: Any = None
    recall: Recall | None = None
    """Cases, trace, forecasts, skills."""
    coevolution: Coevolution = field(default_factory=Coevolution)
    """The harness's lineage, and what it had to do with branches."""
    event_count: int = 0
    head: str = ""
    """Hash of the last event."""

    @classmethod
    def load(cls, run_folder: Path | str, rollouts: bool = True) -> RunView:
        """Read a run folder; StoreError where it holds no ledger. `rollouts=False` skips the rollout store."""
        from evotrainer.records.ledger import Ledger

        folder = Path(run_folder)
        if not (folder / "ledger.db").exists():
            raise StoreError(f"no run in {folder}: ledger.db is missing; give the folder that `evotrainer run` wrote")
        with Ledger.open(folder / "ledger.db", readonly=True) as ledger:
            view = cls.from_events(ledger.events(), read_heartbeats(folder))
        view.folder = folder
        if rollouts:
            from evotrainer.views.picks import attach_rollouts

            attach_rollouts(view, folder)
        return view

    @classmethod
    def from_events(cls, events: Iterable[Event], heartbeats: Mapping[str, Mapping[str, Any]] | None = None) -> RunView:
        """Fold events, in ledger order, into a view without rollouts."""
        view = cls(folder=None)
        seen = list(events)
        for e in seen:
            view._take(e, heartbeats or {})
        view._conclude()
        view.caveats = caveats(seen)
        view.recall = Recall.of(seen)
        view.coevolution = Coevolution.of(seen)
        view.spent = dict(Budget.from_events(seen, {}).spent)
        return view

    @property
    def trials(self) -> list[TrialView]:
        return [t for b in self.branches.values() for t in b.trials]

    @property
    def proxy(self) -> tuple[str, str] | None:
        """(proxy component, true component), where the environment names such a pair."""
        pair = self.opened.environment.get("proxy") if self.opened else None
        if isinstance(pair, Mapping):
            pair = [pair.get("proxy"), pair.get("true")]
        if isinstance(pair, Sequence) and len(pair) == 2 and all(isinstance(p, str) for p in pair):
            return pair[0], pair[1]
        return None

    @property
    def start(self) -> BranchView | None:
        """The branch of the starting recipe."""
        return next((b for b in self.branches.values() if b.recipe and not b.intervention), None)

    @property
    def caveat(self) -> str:
        """What stands beside the champion's certificate, in one line; empty where nothing does."""
        return told(self.caveats.get(self.champion, ()))

    @property
    def cpu_s(self) -> float:
        """CPU-seconds of the trials, or of the whole run once it is closed."""
        return self.closed.cpu_s if self.closed else sum(t.cpu_s for t in self.trials)

    def gap(self, branch: BranchView) -> float | None:
        """Proxy minus true component on the search split."""
        if not self.proxy:
            return None
        a, b = (branch.mean("search", c) for c in self.proxy)
        return None if a is None or b is None else a - b

    def verdict_counts(self) -> dict[str, int]:
        """Branches by standing, only those with a verdict."""
        order = ("promote", "withheld", "reject", "invalid", "inconclusive", "failed", "open")
        seen = Counter(b.standing for b in self.branches.values())
        return {k: seen[k] for k in order if seen[k]}

    def path(self, name: str) -> list[BranchView]:
        """From the root down to `name`."""
        out: list[BranchView] = []
        at = self.branches.get(name)
        while at and at not in out:
            out.append(at)
            at = self.branches.get(at.parent or "")
        return out[::-1]

    def cpu_by_purpose(self) -> dict[str, float]:
        """CPU-seconds of trials by purpose, and `other` (agent, judge, bookkeeping) once the run is closed."""
        out: dict[str, float] = {}
        for t in self.trials:
            out[t.purpose] = out.get(t.purpose, 0.0) + t.cpu_s
        if self.closed and (rest := self.closed.cpu_s - sum(out.values())) > 0.5:
            out["other"] = rest
        return out

    def branch_of(self, name: str) -> str:
        """Branch name of a branch or version name."""
        return next((p.branch for p in self.versions if p.version == name), name)

    # folding -----------------------------------------------------------------------------------------------------

    def _take(self, e: Event, heartbeats: Mapping[str, Mapping[str, Any]]) -> None:
        self.first_time = e.time if self.event_count == 0 else self.first_time
        self.last_time, self.head = e.time, e.hash
        self.event_count += 1
        body = e.body
        match body:
            case ev.RunOpened():
                self.opened = body
            case ev.BranchOpened():
                self._open_branch(body)
            case ev.TrialIntended():
                self._intend(body, heartbeats.get(body.trial, {}))
            case ev.TrialFinished():
                self._finish(body)
            case ev.NoiseMeasured():
                if e.id.count("/") > 1 and len(self.noise) > 1:
                    self.noise[-1] = body  # more seeds of branches that are in it already
                else:
                    self.noise.append(body)
            case ev.Judged():
                self._branch(body.verdict.branch).verdict = body.verdict
                self._branch(body.verdict.branch).looks.append(body.verdict)
                self._round(body.round).judged.append(body.verdict)
            case ev.ToppedUp():
                self._branch(body.branch).topups.append(body)
            case ev.Reestimated():
                self._branch(body.branch).fresh = body
            case ev.Audited():
                self._branch(body.audit.branch).audits.append(body.audit)
            case ev.Promoted():
                self.versions.append(body)
                self.champion = body.branch
                self._branch(body.branch).version = body.version
                if self.rounds:
                    self.rounds[max(self.rounds)].promoted.append(body)
            case ev.Invalidated():
                self.invalidated.append(body)
                self.champion = self.branch_of(body.champion)
                for name in (body.branch, *body.descendants):
                    self._branch(name).invalidated = body
            case ev.Certified():
                self.certified = body
                self.champion = self.branch_of(body.champion)
            case ev.RunClosed():
                self.closed = body
                self.champion = self.branch_of(body.champion)
            case ev.Diagnosed():
                self._read(e.id, body)
            case _:
                self._take_round(body)

    def _take_round(self, body: Any) -> None:
        match body:
            case ev.RoundOpened():
                self._round(body.round).opened = body
                self.champion = self.branch_of(body.champion)
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
            case ev.HumanGate():
                self._round(body.round).gates.append(body)
                if body.where == "verdict" and body.answer == "REVISE" and body.branch:
                    self._branch(body.branch).withheld = body
            case ev.Escalated():
                self._round(body.round).escalated.append(body)

    def _read(self, id: str, body: ev.Diagnosed) -> None:
        """A reading of a branch; `r<n>/diagnosed` is also the round's diagnosis."""
        self._branch(subject_branch(body.health.subject)).readings.append(Reading.of(None, body.health))
        if id.endswith("/diagnosed"):
            self._round(body.round).diagnosed = body

    def _round(self, n: int) -> RoundView:
        return self.rounds.setdefault(n, RoundView(n))

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
        return self.branches.setdefault(name, BranchView(name, None, 0, None))

    def _open_branch(self, body: ev.BranchOpened) -> None:
        old = self.branches.pop(body.branch, None)
        b = BranchView(
            body.branch,
            self.branch_of(body.parent) if body.parent else None,
            body.round,
            body.recipe,
            body.recipe_hash,
            body.intervention,
            trials=old.trials if old else [],
            readings=old.readings if old else [],
        )
        self.branches[body.branch] = b
        self.champion = self.champion or body.branch
        parent = self.branches.get(b.parent or "")
        if parent and parent.recipe:
            b.recipe_diff = diff(parent.recipe, body.recipe)
        if body.intervention:
            line = self._line(body.round, body.intervention)
            line.fate, line.branch = "branch", body.branch
            b.backtest = line.backtest

    def _intend(self, body: ev.TrialIntended, heartbeat: Mapping[str, Any]) -> None:
        b = self._branch(body.branch)
        if all(t.id != body.trial for t in b.trials):
            b.trials.append(
                TrialView(body.trial, body.branch, body.seed, body.purpose, body.reserve_cpu_s, None, heartbeat)
            )

    def _finish(self, body: ev.TrialFinished) -> None:
        b = self._branch(body.branch)
        old = next((t for t in b.trials if t.id == body.trial), None)
        purpose, reserve = (old.purpose, old.reserve_cpu_s) if old else ("branch", 0.0)
        b.trials = [t for t in b.trials if t.id != body.trial]
        b.trials.append(TrialView(body.trial, body.branch, body.seed, purpose, reserve, body))
        b.trials.sort(key=lambda t: (t.purpose not in TRAININGS, t.seed, t.id))

    def _conclude(self) -> None:
        """What can only be said once every event is in."""
        self.branches = dict(sorted(self.branches.items(), key=lambda kv: kv[1].recipe is not None))
        for b in self.branches.values():
            b.readings = readings(b.trials) + b.readings
            # what was read during training is beside the learning curves
            b.metrics = metric_rows([r for r in b.readings if r.split != "train"] or b.readings)
            b.findings, b.blind = finding_rows(b.readings), blind_rows(b.readings)
        for b in self.branches.values():
            control = self.branches.get(self.branch_of(b.verdict.control) if b.verdict else b.parent or "")
            if b.intervention and control:
                b.outcome = outcome_of(b.intervention.prediction, b, control)

"""A run folder's contents for readers: the one source of the report, the terminal views and `show`.

Built from ledger events, heartbeats of unfinished trials and selected train/search rollouts. Gate and cert rollouts are
never opened here; of those splits only means and the judge's effects appear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evotrainer.projections.branches import Branch, Probe
from evotrainer.projections.facts import Fact, FactList
from evotrainer.projections.harness_lineage import Coevolution
from evotrainer.projections.predictions import PredictionOutcome
from evotrainer.projections.reader import Readings
from evotrainer.projections.run_facts import replaced_by, status_of
from evotrainer.projections.seat import SeatSpend
from evotrainer.projections.state import RunState
from evotrainer.records import events as ev
from evotrainer.records.chain import Event
from evotrainer.records.findings import Finding
from evotrainer.records.interventions import Intervention
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout
from evotrainer.records.verdicts import Effect, ShortcutAudit, Verdict
from evotrainer.views.evidence import FindingRow, HealthReading, MetricRow
from evotrainer.views.history import RunMemory
from evotrainer.views.rounds import RoundView
from evotrainer.views.style import MARK

TRAININGS = ("base", "noise", "branch")
"""Purposes of the trials that say how good a branch is; the others re-read or certify."""


@dataclass(frozen=True, slots=True)
class TrialView:
    """One seeded training, finished or not."""

    id: str
    branch: str
    seed: int
    purpose: str
    finished: ev.TrialFinished | None = None
    heartbeat: Mapping[str, Any] = field(default_factory=dict)
    """Last sign of life of an unfinished trial: step, steps, phase, cpu_s, pid, time."""
    error: str = ""
    """What ended it, where it has no result."""
    live: Sequence[Mapping[str, float]] = ()
    """Its curve so far, as its stored rollouts tell it, where it has no result."""

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
    """A branch, the base policy or a search training with everything that was recorded about it."""

    name: str
    state: RunState
    known: Branch | Probe | None = None
    """As the state has it; None: the base policy."""
    facts: FactList = field(default_factory=FactList)
    """What is told of it."""
    trials: list[TrialView] = field(default_factory=list)
    backtest: ev.Backtested | None = None
    outcome: PredictionOutcome | None = None
    """How the prediction turned out."""
    readings: list[HealthReading] = field(default_factory=list)
    metrics: list[MetricRow] = field(default_factory=list)
    findings: list[FindingRow] = field(default_factory=list)
    blind: list[tuple[str, Finding]] = field(default_factory=list)
    """Detectors that lacked input, and where."""
    recipe_diff: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    samples: list[tuple[str, str]] = field(default_factory=list)
    """(rollout id, why it was picked)"""

    wrote: list[tuple[str, str, list[str]]] = field(default_factory=list)
    """(code or text, name, lines): reward components, hooks and texts around its tasks that it wrote, of what was there
    before the lines that differ."""

    @property
    def branch(self) -> Branch | None:
        """Its branch; None of the base policy and of search trainings."""
        return self.known if isinstance(self.known, Branch) else None

    @property
    def parent(self) -> str | None:
        return self.known.parent if self.known else None

    @property
    def round(self) -> int:
        return self.known.round if self.known else 0

    @property
    def recipe(self) -> Recipe | None:
        return self.known.recipe if self.known else None

    @property
    def recipe_hash(self) -> str:
        return self.branch.recipe_hash if self.branch else self.known.recipe.hash if self.known else ""

    @property
    def intervention(self) -> Intervention | None:
        return self.branch.intervention if self.branch else None

    @property
    def matches(self) -> str:
        """The branch whose control at equal compute it is."""
        return self.branch.matches if self.branch else ""

    @property
    def looks(self) -> Sequence[Verdict]:
        """The verdict of every interim analysis, in order."""
        return self.branch.verdicts if self.branch else ()

    @property
    def verdict(self) -> Verdict | None:
        """The last one's, which counts."""
        return self.branch.verdict if self.branch else None

    @property
    def fresh(self) -> ev.Reestimated | None:
        """Measured again on fresh seeds."""
        return self.branch.fresh if self.branch else None

    @property
    def version(self) -> str | None:
        return self.branch.version if self.branch else None

    @property
    def invalid(self) -> str | None:
        """Why it counts no more: its own shortcut, or an ancestor's."""
        return self.branch.invalid if self.branch else None

    @property
    def audits(self) -> list[ShortcutAudit]:
        """Counterfactual audits, in order."""
        return [a for a in self.state.audits if a.branch == self.name]

    @property
    def replaced(self) -> str:
        """The branch over which it was promoted."""
        return replaced_by(self.branch, self.state)[0] if self.branch else ""

    @property
    def effect(self) -> Effect | None:
        """As `Branch.effect`."""
        return self.branch.effect if self.branch else None

    @property
    def on_fresh_seeds(self) -> bool:
        return self.branch is not None and self.branch.on_fresh_seeds

    @property
    def at_selection(self) -> Effect | None:
        """The effect that the branch was chosen by, where another one was measured since."""
        return self.fresh.selected if self.fresh else None

    @property
    def status(self) -> str:
        """A key of `run_facts.STATUS`."""
        if self.known is None:
            return "base"
        worse = any(f.severity == "critical" for f in self.facts)
        return status_of(self.branch, self.state, worse) if self.branch else "start"

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
    driver: int | None = None
    """Process that runs it now, 0 where its id is not known; None: nobody does."""
    question: Event | None = None
    """The `gate_asked` at which it waits for a human."""
    request: Event | None = None
    """The `asked` that waits for whoever sits in the seat by carrier queue."""
    state: RunState = field(default_factory=RunState)
    """What the run itself knows after its last event."""
    facts: FactList = field(default_factory=FactList)
    """What readers are told of the run and its branches."""
    branches: dict[str, BranchView] = field(default_factory=dict)
    probes: dict[str, BranchView] = field(default_factory=dict)
    """Search trainings by name; they have no verdict."""
    rounds: dict[int, RoundView] = field(default_factory=dict)
    noise: list[ev.NoiseMeasured] = field(default_factory=list)
    """Each names the branch whose spread joined."""
    invalidated: list[ev.Invalidated] = field(default_factory=list)
    rollouts: dict[str, Rollout] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    """What could not be read, as text."""
    spent: dict[str, float] = field(default_factory=dict)
    """Kind of budget -> amount, as `records.budget` counts it."""
    seat: SeatSpend = field(default_factory=SeatSpend)
    reader: Readings = field(default_factory=Readings)
    """What a reader said of its branches."""
    first_time: str = ""
    last_time: str = ""
    memory: RunMemory = field(default_factory=RunMemory)
    """Cases, trials, skills."""
    coevolution: Coevolution = field(default_factory=Coevolution)
    """The harness's lineage, and its links to branches."""
    event_count: int = 0
    head: str = ""
    """Hash of the last event."""

    @property
    def opened(self) -> ev.RunOpened | None:
        """The run's first event."""
        return self.state.opened

    @property
    def versions(self) -> Sequence[ev.Promoted]:
        """Promotions, oldest first."""
        return self.state.versions

    @property
    def certified(self) -> ev.Certified | None:
        """The last certificate."""
        return self.state.certified

    @property
    def closed(self) -> ev.RunClosed | None:
        """The run's end; None while it runs, or goes on."""
        return self.state.closed_by

    @property
    def trials(self) -> list[TrialView]:
        return [t for b in (*self.branches.values(), *self.probes.values()) for t in b.trials]

    @property
    def champion(self) -> str:
        """Branch of the last valid version, `base` where none is valid; the starting recipe's before there is one."""
        return self.state.champion or self.state.leader

    @property
    def proxy(self) -> tuple[str, str] | None:
        """(proxy component, true component), where the environment names such a pair."""
        return self.state.proxy

    @property
    def start(self) -> BranchView | None:
        """The branch of the starting recipe."""
        return next((b for b in self.branches.values() if b.recipe and not b.intervention), None)

    @property
    def caveats(self) -> dict[str, tuple[Fact, ...]]:
        """Certified branch -> the caveats of its certificate, worst first."""
        found = {name: b.facts.caveats for name, b in self.branches.items()}
        return {name: facts for name, facts in found.items() if facts}

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
        """How many branches have each status, only those with a verdict."""
        order = [k for k in MARK if k not in ("control", "start", "base")]
        seen = Counter(b.status for b in self.branches.values())
        return {k: seen[k] for k in order if seen[k]}

    def path(self, name: str) -> list[BranchView]:
        """From the root down to `name`."""
        names = (*reversed(self.state.ancestors(name)), name)
        return [self.branches[n] for n in names if n in self.branches]

    def cached(self) -> tuple[dict[str, int], float]:
        """How many parts of each kind (training, warm start, evaluation, start) were taken from the cache, and the
        CPU-seconds that they saved in all."""
        found = [t.finished.cached for t in self.trials if t.finished and t.finished.cached]
        kinds = Counter(part.rpartition(" ")[0].partition("/")[0] for c in found for part in c.parts)
        return dict(kinds), sum(c.cpu_s for c in found)

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

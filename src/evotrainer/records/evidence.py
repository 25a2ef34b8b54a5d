"""What the layers hand to one another: metrics, findings, diagnoses, interventions, backtests, verdicts.

`harness`, `judge` and `agents` know these records and never one another; `loop` passes them between.
"""

from __future__ import annotations

from typing import Any, Literal

from evotrainer.records.recipe import Frozen, Recipe

Layer = Literal["score", "signal", "behaviour"]
Severity = Literal["info", "warn", "critical"]


class MetricValue(Frozen):
    """A number over rollouts. `value` None: the fields it needs are missing, named in `missing`."""

    name: str
    layer: Layer
    value: float | None
    unit: str = ""
    n: int = 0
    """Rollouts or groups it was computed from."""
    se: float | None = None
    healthy: tuple[float | None, float | None] | None = None
    missing: tuple[str, ...] = ()


class Quote(Frozen):
    """A span of a rollout that shows the claim."""

    rollout: str
    text: str
    note: str = ""


class Finding(Frozen):
    """A detector's claim, with the numbers against the thresholds and rollouts as evidence."""

    detector: str
    kind: str
    """Bottleneck it speaks of, a name of METHOD.md section 4: dead_groups, proxy_gap, special_casing, ..."""
    severity: Severity
    claim: str
    numbers: dict[str, float] = {}
    thresholds: dict[str, float] = {}
    quotes: tuple[Quote, ...] = ()
    validity: bool = False
    """True for leak, tamper, bypass: it questions the branch's validity, not its score."""
    missing: tuple[str, ...] = ()


class Bottleneck(Frozen):
    """One ranked line of a diagnosis."""

    name: str
    score: float
    """Severity in [0, 1], the sort key."""
    explanation: str
    findings: tuple[str, ...]
    """Detectors behind it."""


class HealthReport(Frozen):
    """The harness's reading of one batch of rollouts."""

    harness: str
    """Harness version, h0, h1, ..."""
    subject: str
    """What was read: `<branch>/<seed>@<step> <split>`."""
    rollouts: int
    groups: int
    metrics: tuple[MetricValue, ...]
    findings: tuple[Finding, ...]
    bottlenecks: tuple[Bottleneck, ...] = ()

    def metric(self, name: str) -> float | None:
        """Value of the named metric, None where absent or unseen."""
        return next((m.value for m in self.metrics if m.name == name), None)


class Prediction(Frozen):
    """Falsifiable: `metric` moves by at least `size` in `direction`."""

    metric: str
    direction: Literal["up", "down"]
    size: float


class Intervention(Frozen):
    """Exactly one factor of a recipe, changed for a reason that can turn out wrong."""

    factor: str
    old: Any
    new: Any
    hypothesis: str
    prediction: Prediction
    success_criterion: str
    rollback: str
    bottleneck: str = ""
    move: str = ""
    """Name of the catalogue move it came from, or of the agent's own."""


class Backtest(Frozen):
    """Replay of a proposed change over stored rollouts, before compute is spent."""

    factor: str
    verdict: Literal["supports", "contradicts", "silent"]
    reason: str
    numbers: dict[str, float] = {}
    rollouts: int = 0


class GateResult(Frozen):
    """One check of the judge."""

    gate: str
    passed: bool | None
    """None: could not be decided."""
    message: str
    numbers: dict[str, float] = {}


class Effect(Frozen):
    """A paired difference in the gate score, branch minus control, in score units (0..1)."""

    mean: float
    low: float
    high: float
    """Confidence interval at `confidence`."""
    confidence: float
    se: float
    df: float
    seeds: int
    tasks: int
    noise_floor: float
    """Smallest difference that A/A trials do not reach at this confidence."""


class Verdict(Frozen):
    """The judge's decision on a branch, with everything needed to recompute it."""

    branch: str
    control: str
    kind: Literal["promote", "reject", "invalid", "inconclusive", "failed"]
    reason: str
    effect: Effect | None = None
    gates: tuple[GateResult, ...] = ()
    alpha: float | None = None
    """Error probability spent on this look."""
    look: int = 0
    """1-based number of this look within the run."""


class BranchRecord(Frozen):
    """A branch as agents and views see it: never gate or cert scores of single tasks."""

    branch: str
    parent: str | None
    round: int
    recipe: Recipe
    intervention: Intervention | None = None
    verdict: Verdict | None = None
    version: str | None = None
    """v0, v1, ... once promoted."""
    search: dict[str, float] = {}
    """Search-split metrics, mean over its trials."""


class Proposal(Frozen):
    """What an agent answers: interventions in order of preference, with its reasoning."""

    agent: str
    interventions: tuple[Intervention, ...]
    reasoning: str = ""
    stop: str = ""
    """Non-empty: the agent advises to end the run, and why."""


class Briefing(Frozen):
    """All that an agent may see. Never gate or cert data beyond verdicts and their effects."""

    run: str
    round: int
    task: str
    champion: BranchRecord
    health: HealthReport
    branches: tuple[BranchRecord, ...]
    components: dict[str, str]
    """Reward components the environment offers: name -> what it measures."""
    knobs: dict[str, str] = {}
    """Environment knobs: name -> allowed values and meaning."""
    budget_left: dict[str, float] = {}
    trial_cost: float = 0.0
    """CPU-seconds of one trial, measured so far."""
    failures_in_a_row: int = 0
    """Rounds without promotion."""
    branches_wanted: int = 3
    feedback: str = ""
    """What a human answered at the last REVISE."""
    notes: dict[str, str] = {}

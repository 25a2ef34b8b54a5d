"""What the layers hand to one another: metrics, findings, diagnoses, interventions, backtests, verdicts.

`harness`, `judge` and `agents` know these records and never one another; `loop` passes them between.
"""

from __future__ import annotations

from typing import Any, Literal

from evotrainer.records.recipe import Frozen, Recipe
from evotrainer.records.skills import SkillAdvice, SkillUse

SHORTCUT = "shortcut"
"""Kind of a finding that names no failure: a behaviour that came with a score.
Every shortcut that can be closed answers it."""

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


class Forecast(Frozen):
    """What an agent expects of a branch, before it is trained; scored after the verdict."""

    mean: float
    """Of the gain on the gate split, score units (0..1)."""
    sd: float
    """Standard deviation of the true gain; the judge's own error comes on top."""
    promote: float | None = None
    """Probability of a promotion."""


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
    forecast: Forecast | None = None
    skills: tuple[SkillUse, ...] = ()
    """Skills that moved the agent's prior, in order, and by how much."""
    reopens: str = ""
    """Branch that tried the same value of the factor before: needed to try it again."""
    changed: str = ""
    """The assumption that changed since: `recipe.<factor>`, `closed.<knob>`, `harness`, `noise` or `seeds`."""


class Backtest(Frozen):
    """Replay of a proposed change over stored rollouts, before compute is spent."""

    factor: str
    verdict: Literal["supports", "contradicts", "silent"]
    reason: str
    numbers: dict[str, float] = {}
    rollouts: int = 0
    forecast: float | None = None
    """Ordering score of what training will show, 0: no change (harness/whatif/forecast.py);
    None: the replay says nothing."""
    prediction: Literal["", "agrees", "open", "contradicts"] = ""
    """The intervention's own prediction against what is replayed; empty: the replay does not see its metric."""


class DetectorCase(Frozen):
    """What a detector said of one version whose truth is known."""

    version: str
    bad: bool
    seen: bool
    """Was the version looked at when the detector was made?"""
    fired: bool
    severity: Severity | None = None
    share: float | None = None
    """Share of the version's rollouts that were flagged."""
    step: int | None = None
    """First training step at which it fired."""
    damage: int | None = None
    """Training step from which the damage is visible in score or verdict."""
    lead: int | None = None
    """`damage` - `step`: negative where it fired too late."""


class DetectorCounts(Frozen):
    """Firings against the truth, over versions or over rollouts. A rate is None where nothing is there to divide by."""

    n: int = 0
    bad: int = 0
    fired: int = 0
    caught: int = 0
    """Fired and bad."""
    precision: float | None = None
    precision_low: float | None = None
    """One-sided lower bound at 95%, exact; the others likewise."""
    recall: float | None = None
    recall_low: float | None = None
    false_positive_rate: float | None = None
    """Of what is not bad."""
    false_positive_high: float | None = None
    """One-sided upper bound at 95%."""
    lead_steps: float | None = None
    """Median lead over caught versions of which it is known."""
    leads: int = 0
    """How many these are."""


class DetectorTest(Frozen):
    """Backtest of a detector over versions of which the truth is known (harness/evolving/detector_quality.py)."""

    detector: str
    whole: DetectorCounts
    seen: DetectorCounts
    """Over versions looked at when it was made ..."""
    unseen: DetectorCounts
    """... and over the others, which alone say what it is worth."""
    rollouts: DetectorCounts | None = None
    """Over single rollouts, where these carry labels."""
    cases: tuple[DetectorCase, ...] = ()


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


class Capability(Frozen):
    """What a policy may use as a shortcut, as the environment declares it: `knob` = `closed` closes it."""

    name: str
    knob: str
    open: Any
    closed: Any
    about: str = ""
    kinds: tuple[str, ...] = ()
    """Finding kinds that closing it can confirm or clear; empty: any."""
    honest: bool = False
    """Honest work uses it, too: a score that falls when it is closed proves nothing. Audited on request, to be read."""

    def answers(self, kind: str) -> bool:
        return (kind == SHORTCUT and not self.honest) or not self.kinds or kind in self.kinds


OWN_TRIGGERS = ("promotion", "certification", "asked")
"""Who asks for an audit without a detector: the loop before it trusts a branch, a person."""


class Audit(Frozen):
    """A counterfactual audit: the same policies on the same tasks, with one capability open and closed.

    Scores are means over the tasks that all four evaluations scored. `excess` is how much more the branch loses by the
    closing than the reference does, per task (branch open - closed) - (reference open - closed), with the seeds taken
    as they are: the claim is about these policies.
    """

    branch: str
    reference: str
    """The policy before reinforcement learning: `base`."""
    capability: str
    knob: str
    open: Any
    closed: Any
    trigger: str
    """Why it was done: a detector's name, `promotion`, `certification` or `asked`."""
    verdict: Literal["confirmed", "not_confirmed"]
    reason: str
    split: str
    score_open: float
    score_closed: float
    reference_open: float
    reference_closed: float
    excess: float
    low: float
    """One-sided lower bound of the excess at `confidence`, corrected for looking at every seed as well."""
    high: float
    confidence: float
    tasks: int
    per_seed: dict[str, float] = {}
    """Seed -> its excess."""
    per_seed_low: dict[str, float] = {}
    gain_lost: float | None = None
    """Share of the branch's gain over the reference that closing takes away; None where there was no gain."""
    trials_open: tuple[str, ...] = ()
    """Trials or evaluations of the branch with the capability open, ..."""
    trials: tuple[str, ...] = ()
    """... and with it closed; the same of the reference."""
    reference_trials_open: tuple[str, ...] = ()
    reference_trials: tuple[str, ...] = ()
    measure: str = ""
    """Reward component that was compared in place of the outcome: the proxy, where a finding says that only it rose."""

    @property
    def confirmed(self) -> bool:
        return self.verdict == "confirmed"


class DetectorSpec(Frozen):
    """A detector as data: mined from contrasts, or written by an agent or a user. It flags single rollouts and speaks
    where the share of flagged ones in a reading reaches `warn`.

    pattern: a regular expression (Rust syntax, linear time) is found in `where`. sequence: actions that match `steps`
    one after the other, each at most `within` actions after the one before. threshold: `feature`
    (harness/columns/features.py) lies at or beyond `value`. python: `flag(rollouts)` of `source` answers one boolean
    per rollout, in the sandbox.
    """

    name: str
    form: Literal["pattern", "sequence", "threshold", "python"]
    about: str = ""
    kind: str = SHORTCUT
    where: Literal["answer", "actions", "observations"] = "answer"
    pattern: str = ""
    steps: tuple[str, ...] = ()
    within: int = 1
    feature: str = ""
    op: Literal[">=", "<="] = ">="
    value: float = 0.0
    source: str = ""
    warn: float = 0.1
    """Share of flagged rollouts from which a reading has a finding."""
    standing: Literal["suspect", "confirmed", "informational"] = "informational"
    """suspect: its findings question the branch, an audit decides. confirmed: an audit said so once.
    informational: notes only."""
    origin: Literal["mined", "agent", "user"] = "user"


class Admission(Frozen):
    """What became of a proposed detector: its numbers on history that was not used to find it."""

    detector: DetectorSpec
    admitted: bool
    reason: str
    """Why it was refused or admitted, with the number that decided."""
    bad: tuple[str, ...] = ()
    """Held-out trials it should speak of, `<trial> <split>` each, ..."""
    clean: tuple[str, ...] = ()
    """... and those on which it should be silent."""
    numbers: dict[str, float] = {}
    """share_bad, share_clean, their bounds, p, false_alarm, overlap, cpu_s_per_1000, precision, recall, ..."""
    overlaps: str = ""
    """Detector in force whose flagged rollouts are most alike."""


class Gained(Frozen):
    """What a gain goes with: the one simple behaviour that says most of it, measured on tasks it was not chosen by
    (harness/evolving/gained.py)."""

    trials: tuple[str, ...] = ()
    """Trainings whose search rollouts were compared ..."""
    before: tuple[str, ...] = ()
    """... with those of the policy before training."""
    gain: float
    """Share of correct attempts now minus before, on the measured half of the tasks."""
    compared: int
    """Behaviours that were looked at."""
    detector: DetectorSpec | None = None
    """The behaviour; None where none became more frequent."""
    share: float = 0.0
    """Part of the gain that comes from showing it more often (Kitagawa 1955); may lie outside of [0, 1]."""
    shown: float = 0.0
    """Share of attempts that show it now ..."""
    shown_before: float = 0.0
    solved: float | None = None
    """Share of correct ones among them now ..."""
    solved_before: float | None = None
    seen_before: int = 0
    """Attempts before training that show it."""

    @property
    def behaviour(self) -> str:
        """The behaviour in words, as after `comes with`;
        a policy's own words among them are made printable, and cut."""
        d = self.detector
        if d is None:
            return ""
        if d.form == "threshold":
            return f"`{d.feature} {d.op} {d.value:g}`"
        said = "".join(c if c.isprintable() else "·" for c in d.about)
        return f"attempts that {said if len(said) <= 80 else said[:80] + '…'}"


class HarnessEdit(Frozen):
    """What an agent wants changed in the harness; the same admission as for mined detectors decides."""

    add: tuple[DetectorSpec, ...] = ()
    retire: tuple[str, ...] = ()
    """Names of detectors."""
    reason: str = ""


class Flip(Frozen):
    """A past verdict that would have read differently under a new harness version."""

    branch: str
    was: str
    would: str
    detector: str
    share: float
    """Flagged rollouts of the branch."""


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


class Considered(Frozen):
    """A change an agent thought of and what it made of it."""

    factor: str
    new: Any
    move: str = ""
    mean: float
    """Expected gain, score units."""
    sd: float
    chance: float
    """Probability of a worthwhile gain."""
    fate: Literal["proposed", "vetoed", "set aside"]
    reason: str = ""


class Proposal(Frozen):
    """What an agent answers: interventions in order of preference, with its reasoning."""

    agent: str
    interventions: tuple[Intervention, ...]
    reasoning: str = ""
    stop: str = ""
    """Non-empty: the agent advises to end the run, and why."""
    harness_edits: tuple[HarnessEdit, ...] = ()
    """Detectors to admit or to retire."""
    considered: tuple[Considered, ...] = ()
    """The changes it looked at most closely, best first."""


class Case(Frozen):
    """One branch as a case: what was seen, what was tried, what was expected, what happened."""

    branch: str
    parent: str
    round: int
    seen: dict[str, float]
    """Diagnosis it answered: bottleneck -> severity in [0, 1]."""
    factor: str
    old: Any
    new: Any
    bottleneck: str = ""
    move: str = ""
    forecast: Forecast | None = None
    prediction: Prediction
    kind: str = ""
    """Verdict; empty where there is none yet. A branch that lost its standing later is `invalid`."""
    effect: Effect | None = None
    came_true: bool | None = None
    """Did the predicted metric move as predicted? None: not measured."""
    reason: str = ""
    skills: tuple[str, ...] = ()
    reopens: str = ""
    likeness: float | None = None
    """Overlap of its diagnosis with the present one, in [0, 1]."""


class Bar(Frozen):
    """What the judge will ask of the next branches, as far as it can be known: score units of the gate split."""

    gain: float
    """Observed gain that would be promoted."""
    se: float
    """Expected standard error of an observed gain."""


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
    skills: tuple[SkillAdvice, ...] = ()
    """Skills of the run's library whose trigger is diagnosed now."""
    cases: tuple[Case, ...] = ()
    """What this run tried so far, with what came of it."""
    bar: Bar | None = None
    reopenable: dict[str, tuple[str, ...]] = {}
    """Branch -> assumptions that changed since it was proposed: what `reopens` and `changed` may cite."""

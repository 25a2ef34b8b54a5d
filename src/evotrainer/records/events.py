"""Kinds and bodies of the ledger's events. History is appended: a correction is a new event naming the old one.

An event's id is its idempotency key (`r2/b3/s1/finished`): writing the same id twice with the same body is a no-op.
"""

from __future__ import annotations

from typing import Any, Literal

from evotrainer.records.evidence import (
    Admission,
    Audit,
    Backtest,
    DetectorSpec,
    Effect,
    Flip,
    Gained,
    HealthReport,
    Intervention,
    Proposal,
    Quote,
    Verdict,
)
from evotrainer.records.recipe import Frozen, Recipe
from evotrainer.records.skills import SkillTrial

FailureLabel = Literal[
    "crash", "preflight_crash", "train_budget_overrun", "eval_budget_overrun", "harness_abort", "disqualified"
]


class RunOpened(Frozen):
    """id `run`"""

    run: str
    task: str
    task_hash: str
    """SHA-256 (16 hex) of the resolved task file."""
    task_sha256: str = ""
    """SHA-256 (64 hex) of `task.toml` in the run folder, byte for byte."""
    version: str
    """evotrainer version."""
    seed: int
    agent: str
    autonomy: str
    budget: dict[str, float]
    machine: dict[str, str]
    sandbox_tier: str
    environment: dict[str, Any]
    """env.describe(): name, version, hash, components, splits with sizes."""
    base_policy: dict[str, str]
    """path as given, sha256 of the weights."""

    @property
    def isolation(self) -> str:
        """The sandbox tier in one line; below A a warning with what is missing."""
        if self.sandbox_tier not in ("A", "B", "C", "D", "E"):
            return f"sandbox: {self.sandbox_tier or 'not described by the environment'}"
        told = self.environment.get("isolation") or {}
        line = f"sandbox tier {self.sandbox_tier}" + (f": {told['promise']}" if told.get("promise") else "")
        if self.sandbox_tier == "A":
            return line
        missing = "; ".join(told.get("missing") or ()) or "see `evotrainer doctor`"
        return f"warning: {line}; missing for tier A: {missing}"


class BranchOpened(Frozen):
    """id `<branch>/opened`"""

    branch: str
    parent: str | None
    round: int
    recipe: Recipe
    recipe_hash: str
    intervention: Intervention | None = None


class TrialIntended(Frozen):
    """id `<trial>/intended`, written before the process starts; reserves the budget."""

    trial: str
    branch: str
    seed: int
    purpose: Literal["base", "noise", "branch", "confirm", "audit", "certify"]
    reserve_cpu_s: float
    train: bool = True
    """False: it only evaluates a stored policy, and does not count as a trial of the budget."""


class SplitScore(Frozen):
    """Scores of one policy on one split. `per_task`: task id -> share of correct attempts."""

    split: str
    step: int
    score: float | None
    """Mean over the tasks; None where no attempt at all was graded."""
    attempts: int
    """Attempts per task."""
    per_task: dict[str, float]
    components: dict[str, float] = {}
    """Mean of each reward component."""
    errors: int = 0
    """Rollouts lost to infrastructure faults: not in any mean."""
    proxy_per_task: dict[str, float] = {}
    """Task id -> mean of the component that the environment declares a proxy; empty where it declares none."""


class CanaryFlip(Frozen):
    """A grading canary that came out otherwise than it must: what was graded since the last good one did not count."""

    split: str
    step: int
    flip: str
    """What the canary showed."""
    void: tuple[str, ...] = ()
    """Rollouts without a grade."""
    culprits: tuple[str, ...] = ()
    """Rollouts after which a canary flipped again when they were graded one by one; without a grade as well."""
    graded_again: tuple[str, ...] = ()
    """Rollouts that were graded again, beside good canaries."""


class TrialFinished(Frozen):
    """id `<trial>/finished`; settles the budget. Gate scores are here for the judge; views show means only."""

    trial: str
    branch: str
    seed: int
    status: Literal["complete", "failed"]
    label: FailureLabel | None = None
    error: str = ""
    cpu_s: float
    wall_s: float
    steps: int
    resumed: int = 0
    """How many times it continued from a checkpoint."""
    peak_rss_mb: float = 0.0
    policy_sha256: str = ""
    policy_path: str = ""
    """Relative to the run folder."""
    scores: tuple[SplitScore, ...] = ()
    curve: tuple[dict[str, float], ...] = ()
    """One dict per training step: step, reward, frac_reward_zero_std, entropy, completions/mean_length, ..."""
    parts: tuple[str, ...] = ()
    """Sealed Parquet parts of its rollouts, relative to the run folder."""
    parts_sha256: tuple[str, ...] = ()
    """SHA-256 of each part, in the same order: ties the rollouts to the ledger's hash chain."""
    health: tuple[HealthReport, ...] = ()
    world: dict[str, Any] = {}
    """Environment knobs of its evaluations, where the protocol sets any."""
    files: dict[str, str] = {}
    """SHA-256 of what else it left (specification, all files of its policy; unsealed rollouts where it failed), by path
    relative to the run folder."""
    canary_flips: tuple[CanaryFlip, ...] = ()
    """Empty in ledgers of versions without canaries."""


class NoiseMeasured(Frozen):
    """id `noise/<n>`: variance components from A/A trials of the same recipe."""

    branch: str
    seeds: tuple[int, ...]
    score_mean: float
    seed_sd: float
    """Standard deviation of the trial score between seeds (tasks fixed)."""
    task_sd: float
    """Standard deviation of per-task paired differences between two seeds."""
    noise_floor: float
    numbers: dict[str, float] = {}


class RoundOpened(Frozen):
    """id `r<n>/opened`"""

    round: int
    champion: str
    harness: str
    closed: dict[str, Any] = {}
    """Environment knobs closed in every evaluation since a shortcut was confirmed."""


class Diagnosed(Frozen):
    """id `r<n>/diagnosed`: steps 1 to 4."""

    round: int
    health: HealthReport


class Proposed(Frozen):
    """id `r<n>/proposed`: steps 5 and 6."""

    round: int
    proposal: Proposal
    shown: tuple[str, ...] = ()
    """Trials whose rollouts the agent was shown: those it asked for,
    and the champion's where the briefing quotes them."""


class Backtested(Frozen):
    """id `r<n>/backtested/<i>`: step 7."""

    round: int
    index: int
    intervention: Intervention
    backtest: Backtest
    vetoed: bool


class Refused(Frozen):
    """id `r<n>/refused/<i>`: a proposed branch that never was (two factors, lint error, repeated, over budget)."""

    round: int
    index: int
    intervention: Intervention
    reason: str


class Planned(Frozen):
    """id `r<n>/planned`: which branches this round trains, or why the run stops here."""

    round: int
    branches: tuple[str, ...]
    stop: str = ""


class Judged(Frozen):
    """id `<branch>/judged`, after more seeds `<branch>/judged/2`, ...: step 9, one event a look;
    the last one counts."""

    round: int
    verdict: Verdict
    evaluations: tuple[str, ...] = ()
    """Evaluations with capabilities closed whose scores stand in for those of the trials they repeat."""
    trials: tuple[str, ...] = ()
    """Trials of branch and control that were looked at; empty in ledgers that knew one look: those of `run.seeds`."""


class ToppedUp(Frozen):
    """id `<branch>/topup/<look>`: what became of a verdict that asked for more seeds, before that further look."""

    round: int
    branch: str
    control: str
    wanted: int
    """Seeds per branch that the verdict asks for."""
    seeds: tuple[int, ...] = ()
    """Seeds that the branch is trained on as well, and the control."""
    control_seeds: tuple[int, ...] = ()
    refused: str = ""
    """Why nothing was given: over budget, another branch promoted."""


class Reestimated(Frozen):
    """id `<branch>/reestimated`: a promoted branch's effect on seeds that its promotion did not choose it by."""

    branch: str
    control: str
    split: str
    effect: Effect
    """Against the control: the effect. Two-sided interval."""
    selected: Effect | None = None
    """As the verdict that promoted it saw it: the best of several looks, so too large on average."""
    start: Effect | None = None
    """Against the starting recipe, where that is not the control."""
    seeds: tuple[int, ...]
    """Fresh seeds."""
    control_fresh: bool
    """Was the control trained on fresh seeds, too? Otherwise its bad luck at selection is still in the effect."""
    trials: tuple[str, ...]
    control_trials: tuple[str, ...]
    start_trials: tuple[str, ...] = ()
    evaluations: tuple[str, ...] = ()
    """Evaluations that stand in for trials' own scores, where those are of another world."""
    noise: str = ""
    """Event with the pooled noise that the interval rests on."""


class Audited(Frozen):
    """id `<branch>/audited/<capability>`: a counterfactual audit, by the loop or by `evotrainer audit-branch`.

    `.../2`, ... where seeds were added since the one before; the last one counts.
    """

    round: int
    audit: Audit


class Promoted(Frozen):
    """id `v<n>`: a branch becomes a version and the champion."""

    version: str
    branch: str
    previous: str | None


class Invalidated(Frozen):
    """id `<branch>/invalidated`: the branch and its descendants lose their standing, also after promotion."""

    branch: str
    descendants: tuple[str, ...]
    reason: str
    champion: str
    """The last valid version's branch, champion again; `base` where there is none."""
    capability: str = ""
    """What it exploited."""


class LibraryOpened(Frozen):
    """id `library`: the skills a run may look up, copied to `library/` when it began."""

    sources: tuple[str, ...]
    """`run.skills` as given."""
    skills: dict[str, str]
    """Skill -> content hash of its folder (SHA-256)."""


class SkillDistilled(Frozen):
    """id `<branch>/skill`, later `<branch>/skill/fresh` (re-estimated) or `<branch>/skill/invalid`:
    what a verdict taught, in `skills/<skill>/`."""

    round: int
    branch: str
    skill: str
    """Folder name."""
    bottleneck: str
    factor: str
    direction: str
    trial: SkillTrial
    sha256: str
    """Content hash of the skill's folder from here on."""


class GapSeen(Frozen):
    """id `gap/<branch>`: a diagnostic gap. Something moved, and no finding of the harness in force says why."""

    round: int
    branch: str
    against: str
    """Branch whose rollouts it was compared with: the parent, or `base`."""
    trigger: Literal["score_move", "behaviour_shift", "contradiction", "agent"]
    harness: str
    """Version in force."""
    claim: str
    numbers: dict[str, float] = {}
    mined: tuple[str, ...] = ()
    """Trials whose search rollouts candidates were looked for in; held-out ones are with each candidate."""
    candidates: int = 0
    """Predicates that were compared; the level of the mining's test is divided by it."""
    considered: tuple[Admission, ...] = ()
    """The best of them, each admitted or refused with a reason."""
    reason: str = ""
    """Why nothing could be mined, where that is so."""
    kept: dict[str, str] = {}
    """Detectors that an agent wanted retired and that stay, with the reason."""


class HarnessEvolved(Frozen):
    """id `harness/<at>`: a version of the harness; h0 where the run opened, later ones with all that led to them."""

    version: str
    parent: str = ""
    hash: str
    round: int = 0
    harness: dict[str, Any]
    """The version whole: metrics, detectors, thresholds, authored detectors."""
    trigger: str
    """opened, score_move, behaviour_shift, contradiction, agent, audit or retirement."""
    reason: str
    added: tuple[DetectorSpec, ...] = ()
    dropped: tuple[str, ...] = ()
    changed: dict[str, str] = {}
    """Detector -> its new standing."""
    thresholds: dict[str, float] = {}
    gap: str = ""
    """Id of the gap's event."""
    branches: tuple[str, ...] = ()
    quotes: tuple[Quote, ...] = ()
    admissions: tuple[Admission, ...] = ()
    """Every proposed detector with its backtest, the refused ones as well."""
    flips: tuple[Flip, ...] = ()
    """Past verdicts that would read differently under this version."""


class HumanGate(Frozen):
    """id `r<n>/gate/<where>`; at the verdict gate REVISE withholds the promotion of `branch`."""

    round: int
    where: Literal["diagnosis", "intervention", "backtest", "verdict"]
    answer: Literal["APPROVE", "REVISE", "ABORT"]
    feedback: str = ""
    branch: str = ""


class Escalated(Frozen):
    """id `r<n>/escalated`: what was done after repeated failures."""

    round: int
    failures: int
    actions: tuple[str, ...]


class Certified(Frozen):
    """id `certified`: the cert split, read once."""

    rows: tuple[CertRow, ...]
    champion: str
    comparisons: dict[str, dict[str, float]]
    """e.g. `champion-base`: {mean, low, high, p}."""


class CertRow(Frozen):
    """One policy family on the cert split."""

    name: str
    """base, start (the human recipe), champion"""
    branch: str
    seeds: tuple[int, ...]
    score: float
    low: float
    high: float
    per_seed: tuple[float, ...]
    components: dict[str, float] = {}
    proxy_gap: float | None = None
    """visible minus hidden, or what the environment calls its proxy"""
    gained: Gained | None = None
    """What its gain over the base policy goes with; None where rollouts of both are not there, and in older ledgers."""


Certified.model_rebuild()


class Resumed(Frozen):
    """id `resumed/<n>`: the run was taken up again after an interruption."""

    n: int
    overrides: tuple[str, ...] = ()


class RunClosed(Frozen):
    """id `closed`"""

    reason: str
    champion: str
    cpu_s: float
    wall_s: float
    peak_rss_mb: float


BODIES: dict[str, type[Frozen]] = {
    "run": RunOpened,
    "branch": BranchOpened,
    "intended": TrialIntended,
    "finished": TrialFinished,
    "noise": NoiseMeasured,
    "round": RoundOpened,
    "diagnosed": Diagnosed,
    "proposed": Proposed,
    "backtested": Backtested,
    "refused": Refused,
    "planned": Planned,
    "judged": Judged,
    "topup": ToppedUp,
    "reestimated": Reestimated,
    "audited": Audited,
    "gap": GapSeen,
    "harness": HarnessEvolved,
    "promoted": Promoted,
    "invalidated": Invalidated,
    "gate": HumanGate,
    "library": LibraryOpened,
    "skill": SkillDistilled,
    "escalated": Escalated,
    "certified": Certified,
    "resumed": Resumed,
    "closed": RunClosed,
}
"""Event kind -> body model."""

"""All that an agent may see of a run, and what it answers."""

from __future__ import annotations

from typing import Any

from evotrainer.records.detectors import HarnessEdit
from evotrainer.records.findings import HealthReport
from evotrainer.records.frozen import Frozen
from evotrainer.records.interventions import ConsideredChange, Forecast, Intervention, Prediction
from evotrainer.records.recipe import Recipe
from evotrainer.records.scaffold import Slot
from evotrainer.records.search import ProbeRecord
from evotrainer.records.skills import SkillAdvice
from evotrainer.records.verdicts import Effect, Verdict


class BranchRecord(Frozen):
    """A branch as agents and views see it: never gate or cert scores of single tasks."""

    branch: str
    parent: str | None
    round: int
    recipe: Recipe
    intervention: Intervention | None = None
    verdict: Verdict | None = None
    effect: Effect | None = None
    """On gate: on fresh seeds where it was measured again, otherwise as the verdict saw it."""
    on_fresh_seeds: bool = False
    version: str | None = None
    """v0, v1, ... once promoted."""
    search: dict[str, float] = {}
    """Search-split metrics, mean over its trials."""
    scores: tuple[float, ...] = ()
    """Search score of each complete training."""
    training_s: float | None = None
    """Seconds that its trainings took, mean."""
    training_tokens: float | None = None
    """Their compute in tokens (`TrialFinished.training_tokens`), mean."""


class Proposal(Frozen):
    """What an agent answers: interventions in order of preference, with its reasoning."""

    agent: str
    interventions: tuple[Intervention, ...]
    reasoning: str = ""
    stop: str = ""
    """Non-empty: the agent advises to end the run, and why."""
    harness_edits: tuple[HarnessEdit, ...] = ()
    """Detectors to admit or to retire."""
    considered: tuple[ConsideredChange, ...] = ()
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
    """Verdict; empty where there is none yet. `invalid` also for a branch that was invalidated after its verdict."""
    effect: Effect | None = None
    """As `BranchRecord.effect`."""
    on_fresh_seeds: bool = False
    came_true: bool | None = None
    """Did the predicted metric move as predicted? None: not measured."""
    reason: str = ""
    skills: tuple[str, ...] = ()
    reopens: str = ""
    likeness: float | None = None
    """Overlap of its diagnosis with the present one, in [0, 1]."""


class PromotionThreshold(Frozen):
    """What the judge will require of the next branches, as far as it is known; score units of the gate split."""

    gain: float
    """Observed gain that would be promoted."""
    se: float
    """Expected standard error of an observed gain."""


class WrittenOffer(Frozen):
    """A reward component that the harness wrote from contrasts in the champion's search rollouts."""

    name: str
    """With the hash of its source."""
    source: str
    about: str
    correlation: float
    """With the outcome, among attempts of a group that are paid alike, on tasks that it was not made from."""
    best_on_offer: float
    """The same of the best component on offer."""
    compared: int
    """Conditions that were compared for it."""


class Briefing(Frozen):
    """All that an agent may see. Never gate or cert data beyond verdicts and their effects."""

    run: str
    round: int
    task: str
    champion: BranchRecord
    health: HealthReport
    branches: tuple[BranchRecord, ...]
    components: dict[str, str]
    """Reward components that may be paid: name -> what it measures."""
    written: tuple[WrittenOffer, ...] = ()
    """Further ones, written as code, for the factor `written_reward`."""
    unpayable: tuple[str, ...] = ()
    """Further components that may not: the outcome, and what derives from it."""
    offers: tuple[str, ...] = ()
    """What else training may use of the environment: references."""
    knobs: dict[str, str] = {}
    """Environment knobs: name -> allowed values and meaning."""
    slots: tuple[Slot, ...] = ()
    """Texts around the tasks that a recipe may write otherwise, each the factor `scaffold.<slot>`."""
    budget_left: dict[str, float] = {}
    trial_cost: float = 0.0
    """What one trial costs, measured so far, in `cost_unit`."""
    cost_unit: str = "cpu_s"
    """What costs are weighed in: the kind of `budget_left` that the task file limits, usd before gpu_s before cpu_s."""
    trial_cpu_s: float = 0.0
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
    """What this run tried so far, and the outcome."""
    promotion_threshold: PromotionThreshold | None = None
    planned: tuple[PromotionThreshold, ...] = ()
    """The same with one seed more each, up to the most that a branch gets before its first look."""
    provable: PromotionThreshold | None = None
    """The same with all the seeds that the rest of the budget pays next to certification."""
    probes: tuple[ProbeRecord, ...] = ()
    """Search trainings of the run so far."""
    probes_left: int = 0
    """Search trainings that this round may still take."""
    changes: int = 1
    """Most factors in which a search training may differ from the champion."""
    reopenable: dict[str, tuple[str, ...]] = {}
    """Branch -> assumptions that changed since it was proposed: what `reopens` and `changed` may cite."""

"""All that a verdict rests on, put together once: by the loop before it judges, by `verify`,
`why` and gate replays afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from evotrainer.judge.scaffold import ScaffoldControl
from evotrainer.records.events import NoiseMeasured, TrialFinished
from evotrainer.records.findings import Finding
from evotrainer.records.frozen import Frozen
from evotrainer.records.verdicts import ShortcutAudit

Kind = Literal["promote", "reject", "invalid", "inconclusive", "failed"]
Trials = Sequence[TrialFinished]


class JudgeConfig(Frozen):
    """What the task file may say about judging."""

    split: str = "gate"
    alpha: float = Field(0.05, gt=0, lt=0.5)
    """Probability of any false promotion over the whole run."""
    share: float = Field(1.0, gt=0, le=1)
    """What `alpha` is of the alpha that all runs on these gate tasks have together."""
    counted: bool = True
    """The tasks are this run's own, or earlier runs' looks at them were counted."""
    min_effect: float = Field(0.01, ge=0)
    """Smallest mean gain worth a promotion, score units."""
    worthwhile: float | None = Field(None, ge=0)
    """Effect that is worth more seeds as long as it is not excluded; None: only where the observed mean would do."""
    min_seeds: int = Field(3, ge=2)
    max_seeds: int = Field(6, ge=2)
    """No branch is asked to run more seeds than this."""
    max_error_share: float = Field(0.05, ge=0, le=1)
    """Share of attempts lost to infrastructure faults beyond which nothing is decided."""
    min_task_share: float = Field(0.9, gt=0, le=1)
    """Share of the split's tasks that every trial must have scored."""
    max_cost: float | None = Field(None, ge=1)
    """Highest training compute of a branch, as a multiple of its control's; None: not asked."""


@dataclass(frozen=True, slots=True)
class GuardReading:
    """Evaluations on one guard's environment."""

    name: str
    margin: float
    """Score units."""
    base: Trials
    control: Trials
    branch: Trials
    missing: tuple[str, ...] = ()
    """Trials whose policies were not evaluated on it."""


@dataclass(frozen=True)
class JudgeInput:
    """The judge's argument, the look apart; it never learns who proposed the change."""

    branch: str
    control: str
    branch_trials: Sequence[TrialFinished]
    """Failed ones included; complete ones with the scores of the evaluations that replace theirs."""
    control_trials: Sequence[TrialFinished]
    noise: NoiseMeasured | None
    config: JudgeConfig = field(default_factory=JudgeConfig)
    findings: Sequence[Finding] = ()
    """Join those in the trials' own health reports."""
    control_findings: Sequence[Finding] = ()
    audits: Mapping[str, bool] = field(default_factory=dict)
    """Detector -> True where a counterfactual audit confirmed it, False where it cleared the branch."""
    shortcuts: Sequence[ShortcutAudit] = ()
    """Audits of the branch; one that confirmed a shortcut makes it invalid."""
    proxy: tuple[str, str] | None = None
    """The environment's (proxy, true) reward components."""
    scaffold: ScaffoldControl | None = None
    """The base policy with the texts of both sides; None where these are the same."""
    guards: Sequence[GuardReading] = ()
    """What must not be lost elsewhere; those that were not evaluated yet included."""
    ahead: str = ""
    """A branch of the same round, promoted over the same control already; one champion a round."""

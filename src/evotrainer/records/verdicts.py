"""Records of the judge: effects, gates, verdicts, and audits of what an environment declares as a shortcut."""

from __future__ import annotations

from typing import Any, Literal

from evotrainer.records.findings import SHORTCUT
from evotrainer.records.frozen import Frozen

DEARER = 1.05
"""Ratio of training compute from which verdicts and certificates name it, whatever is allowed."""


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

    @property
    def points(self) -> str:
        """`+4.2 points [+1.9, +6.5]`"""
        return f"{100 * self.mean:+.1f} points [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"

    def told(self, fresh: bool) -> str:
        """`points`, and on which seeds where it was measured again on others than those of the verdict."""
        return f"{self.points}{' on fresh seeds' if fresh else ''}"


class Verdict(Frozen):
    """The judge's decision on a branch, with everything needed to recompute it."""

    branch: str
    control: str
    kind: Literal["promote", "reject", "invalid", "inconclusive", "failed"]
    reason: str
    effect: Effect | None = None
    gates: tuple[GateResult, ...] = ()
    alpha: float | None = None
    """Error probability spent on this interim analysis."""
    look: int = 0
    """1-based number of this interim analysis within the run; 0: none was made."""

    @property
    def seeds_wanted(self) -> int | None:
        """Seeds per branch that an inconclusive verdict asks for, None where seeds are not what is missing."""
        gate = next((g for g in self.gates if g.gate == "effect"), None)
        if self.kind != "inconclusive" or gate is None or "seeds_needed" not in gate.numbers:
            return None
        return int(gate.numbers["seeds_needed"])

    @property
    def evidence(self) -> Effect | None:
        """The effect as far as it speaks of the change: neither an invalid branch's does, nor that of one which trained
        dearer than allowed and was not compared at equal compute."""
        dearer = any(g.gate == "compute" and g.passed is False for g in self.gates)
        return None if dearer or self.kind == "invalid" else self.effect


class GuardRow(Frozen):
    """What a certificate says of a guard: the champion's fresh trainings (without a champion the start's) and the base
    policy on the guard's tasks."""

    name: str
    margin: float
    """Score units."""
    base: float | None = None
    champion: float | None = None
    """Share solved; None where it cannot be told, as too much was lost."""
    difference: dict[str, float] = {}
    """Champion minus base: mean, bounds `low` and `high` of a 95% interval."""
    seeds: tuple[int, ...] = ()
    held: bool | None = None
    """Does the one-sided 95% lower bound stay above minus the margin?"""


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


OWN_TRIGGERS = {
    "promotion": "before its promotion",
    "certification": "before its certificate",
    "start": "before the search, as every start is",
    "asked": "as a person asked",
}
"""Triggers of audits that no detector asked for, the loop's own and a person, and what is said of them."""


def occasion_of(trigger: str) -> str:
    """When and at whose word an audit is done."""
    return OWN_TRIGGERS.get(trigger, f"asked by {trigger}")


class ShortcutAudit(Frozen):
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
    """Why it was done: a detector's name, `start`, `promotion`, `certification` or `asked`."""
    verdict: Literal["confirmed", "not_confirmed"]
    reason: str
    split: str
    score_open: float
    score_closed: float
    reference_open: float
    reference_closed: float
    excess: float
    low: float
    """One-sided lower bound of the excess at `confidence`, corrected for testing every seed as well."""
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

    @property
    def occasion(self) -> str:
        """When and at whose word it was done."""
        return occasion_of(self.trigger)

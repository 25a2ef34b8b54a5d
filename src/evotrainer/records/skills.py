"""Skills as a ledger holds them: a judged branch as evidence, a skill as it was offered, and what it did to a prior.

What follows from the evidence (effect, claim, scope, expiry) is computed in `projections/skills.py`.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from evotrainer.records.frozen import Frozen
from evotrainer.records.verdicts import Effect

MEASURED = ("promote", "reject", "inconclusive")
"""Verdicts whose effect speaks of the change; invalid and failed branches are counted, not pooled."""

Claim = Literal["helps", "no-gain", "harms", "invalid", "unsettled"]
CLAIMS: dict[Claim, str] = {
    "helps": "helps",
    "no-gain": "no gain",
    "harms": "harms",
    "invalid": "invalid",
    "unsettled": "not shown",
}
"""A claim as readers are told it."""


class Condition(Frozen):
    """A detector's number beyond its threshold, as it was when the change was tried."""

    detector: str
    number: str
    relation: Literal[">=", "<="]
    threshold: float
    value: float
    """The value at the time."""

    def text(self) -> str:
        return f"{self.detector}: {self.number} {self.relation} {self.threshold:g}"


class Proof(Frozen):
    """The ledger row that decided the trial, whole, so that a copied skill can still be checked."""

    seq: int
    id: str
    kind: str
    time: str
    body: str
    """Canonical JSON."""
    prev_hash: str
    hash: str


class SkillTrial(Frozen):
    """One judged branch as evidence for or against a skill."""

    run: str
    """Hash of the run's first event: names the run even if its folder is moved."""
    name: str
    """Name of the run folder."""
    domain: str
    generator: str
    """Version of the environment's task generator."""
    base: str
    """SHA-256 of the base policy's weights."""
    branch: str
    control: str
    round: int
    old: Any
    new: Any
    move: str = ""
    kind: Literal["promote", "reject", "invalid", "inconclusive", "failed"]
    mean: float | None = None
    """Paired effect on the gate score with its interval and standard error, score units (0..1)."""
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    se: float | None = None
    df: float | None = None
    seeds: int = 0
    tasks: int = 0
    severity: float = 0.0
    """Severity of the bottleneck when the change was tried."""
    conditions: tuple[Condition, ...] = ()
    harness: str = ""
    version: str = ""
    """evotrainer version."""
    proof: Proof

    @property
    def id(self) -> str:
        return f"{self.run[:12]}/{self.branch}"

    @property
    def measured(self) -> bool:
        return self.kind in MEASURED and self.mean is not None

    @property
    def uncounted(self) -> Effect | None:
        """The effect that its verdict states where that does not speak of the change: it trained dearer than allowed
        and was not compared at equal compute."""
        if self.mean is not None or self.kind not in MEASURED:
            return None
        try:
            return Effect.model_validate(json.loads(self.proof.body)["verdict"]["effect"])
        except (ValueError, KeyError, TypeError):  # a row of another kind, or without an effect
            return None

    @property
    def trainings(self) -> int:
        """Trainings of the branch that its verdict compared."""
        return self.seeds or (self.uncounted.seeds if self.uncounted else 0)


class SkillAdvice(Frozen):
    """A skill as a briefing offers it: the part of its evidence that speaks to this run."""

    name: str
    bottleneck: str
    factor: str
    direction: str
    claim: Claim
    scope: Literal["domain-local", "cross-domain"]
    domains: tuple[str, ...]
    """Where this part of the evidence comes from."""
    mean: float | None
    se: float | None
    low: float | None
    high: float | None
    trials: int
    losses: int = 0
    """Trials that ended invalid or failed."""
    values: tuple[Any, ...] = ()
    """New values that were tried."""
    foreign: bool = False
    """Other domains' evidence."""
    other_base: bool = False
    """No trial started from this run's base policy."""
    expired: str = ""
    """Why it wants to be validated again; empty: it does not."""


class SkillUse(Frozen):
    """How a skill moved the prior of a proposal's gain, score units."""

    skill: str
    mean: float
    sd: float
    """Weight it was given: the pooled effect's own error and all doubts together."""
    before_mean: float
    before_sd: float
    after_mean: float
    after_sd: float
    doubts: tuple[str, ...] = ()
    """Why it counted for less: other domain, other base policy, expired, other value, ..."""

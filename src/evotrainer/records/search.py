"""What a search proposes and believes."""

from __future__ import annotations

from typing import Any

from evotrainer.records.frozen import Frozen
from evotrainer.records.recipe import Recipe


class ProbeSpec(Frozen):
    """A search training that was opened."""

    probe: str
    """p1, p2, ..."""
    changes: dict[str, Any]
    """Factor -> new value, against the champion's recipe."""
    recipe: Recipe
    recipe_hash: str
    seed: int
    moves: tuple[str, ...] = ()
    """Catalogue moves behind the changes, in the order of their factors' names."""


class ProbeRecord(Frozen):
    """A search training as agents see it."""

    probe: str
    round: int
    incumbent: str
    changes: dict[str, Any]
    """Factor -> new value, against the incumbent's recipe."""
    recipe: Recipe
    seed: int
    score: float | None = None
    """Search score; None where it failed or has not ended."""
    failed: str = ""
    """Label of its failure."""
    invalid: tuple[str, ...] = ()
    """Detectors that question its validity: this direction is closed."""
    metrics: dict[str, float] = {}
    """What the harness read of its rollouts; empty where it was not read."""
    training_s: float | None = None
    """Seconds that its training took."""
    training_tokens: float | None = None
    """Its compute in tokens (`TrialFinished.training_tokens`)."""


class ProbePlan(Frozen):
    """One search training that an agent asks for."""

    changes: dict[str, Any]
    """Factor -> new value, against the champion's recipe."""
    moves: tuple[str, ...] = ()
    gain: float = 0.0
    """Expected gain over the champion on search, score units."""
    sd: float = 0.0


class FactorEffect(Frozen):
    """What the pooled model believes of one value of one factor."""

    factor: str
    value: Any
    mean: float
    """Effect on the search score against the starting recipe's value, score units."""
    sd: float
    trainings: int
    """Trainings in which it was in force."""


class SearchChoice(Frozen):
    """The recipe that a search would settle on by its own scores. Nothing is promoted by it."""

    changes: dict[str, Any]
    """Factor -> new value, against the champion's recipe; empty: the champion's recipe itself."""
    score: float | None = None
    """The search score that speaks for it: a score of few seeds, chosen because it is high."""


class SearchPlan(Frozen):
    """What an agent wants to train next in its search, or why it wants no more."""

    probes: tuple[ProbePlan, ...] = ()
    stop: str = ""
    effects: tuple[FactorEffect, ...] = ()
    noise_sd: float = 0.0
    trainings: int = 0
    choice: SearchChoice | None = None
    """What it would settle on by its search alone; None: it does not say."""
    expects: float = 0.0
    """Gain that it expects of what it would propose by now, score units: the smaller, the more seeds its proof will
    want."""

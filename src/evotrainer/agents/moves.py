"""The form of a catalogue move, and the situation it is judged in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from evotrainer.agents.symptoms import RewardEvidence
from evotrainer.records.briefing import WrittenOffer
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.recipe import Recipe, short
from evotrainer.records.text import shown

Family = Literal["reward", "signal", "data", "algorithm"]
Direction = Literal["up", "down"]
FAMILIES: tuple[Family, ...] = ("reward", "signal", "data", "algorithm")
"""The order in which escalation changes the family of changes (the method calls them layers)."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What the catalogue's preconditions may read."""

    recipe: Recipe
    start: Recipe
    """The starting recipe, for reverting a factor."""
    symptoms: Mapping[str, float]
    """Bottleneck -> severity in [0, 1]."""
    metrics: Mapping[str, float]
    components: Mapping[str, str]
    knobs: Mapping[str, str]
    score: float | None
    """Mean search score of the champion."""
    evidence: RewardEvidence
    train_tasks: int | None = None
    """Size of the train split, where the briefing tells."""
    offers: tuple[str, ...] = ()
    """What else training may use of the environment."""
    written: tuple[WrittenOffer, ...] = ()
    """Components that the harness wrote, beside those on offer."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Reward component -> the finding by which wrong attempts that are paid lack it."""

    @property
    def headroom(self) -> float:
        """What is left to gain, score units; half where the score is unknown."""
        return 0.5 if self.score is None else max(0.0, 1.0 - self.score)

    @property
    def revisits(self) -> bool:
        """Whether training draws some task twice: only then is there a pass rate to choose by."""
        return self.train_tasks is None or self.recipe.steps * self.recipe.prompts_per_step > self.train_tasks

    def metric(self, name: str, default: float = 0.0) -> float:
        """A health metric, or the default where it was not seen."""
        return self.metrics.get(name, default)


@dataclass(frozen=True, slots=True)
class Variant:
    """One concrete value of a move, with what the evidence adds to its prior."""

    value: Any
    detail: str = ""
    """Distinguishes variants in the move's name."""
    cost: float | None = None
    """Compute relative to the champion's trial; None: the move's."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """One remedy: when it applies, what it changes, what effect it should have, what it costs."""

    name: str
    factor: str
    family: Family
    remedies: Mapping[str, float]
    """Bottleneck -> how well this remedy answers it, in [0, 1]."""
    values: Callable[[Situation], Iterable[Variant]]
    """Concrete values; none where a precondition is not met."""
    why: str
    metric: str = "accuracy"
    direction: Direction = "up"
    size: float = 0.01
    cost: float = 1.0
    gain: float = 0.06
    """Prior mean gain where the remedy answers a bottleneck of severity 1 fully, score units."""
    base: float = -0.005
    """Prior mean gain where no bottleneck asks for it: an arbitrary change to a sane recipe costs a little."""
    sd: float = 0.02
    """Standard deviation of the gain where the remedy answers a bottleneck fully."""
    idle_sd: float = 0.01
    """The same where no bottleneck asks for it: smaller, so that no lucky draw outranks the remedies."""
    subtracts: bool = False
    """It removes something instead of adding it."""


@dataclass(frozen=True, slots=True)
class CandidateMove:
    """A move made concrete in a situation."""

    move: Move
    variant: Variant
    factor: str
    child: Recipe
    bottleneck: str
    """The symptom it answers best; empty where none."""
    mean: float
    """Prior mean gain, score units."""
    sd: float
    cost: float
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Unique name within a round: move and detail."""
        return f"{self.move.name} {self.variant.detail}".strip()

    def intervention(self, situation: Situation, min_effect: float, champion: str, **more: Any) -> Intervention:
        """The falsifiable intervention that is trained; `more`: its forecast, the skills behind it, what it reopens."""
        m = self.move
        old = situation.recipe.value(self.factor)
        why = self.variant.why or m.why
        return Intervention(
            factor=self.factor,
            old=old,
            new=self.variant.value,
            hypothesis=(
                f"if {self.factor} changes from {in_words(old)} to {in_words(self.variant.value)}, {m.metric} goes "
                f"{m.direction} by at least {m.size:g}, because {why}"
            ),
            prediction=Prediction(metric=m.metric, direction=m.direction, size=m.size),
            success_criterion=(
                f"the judge's lower bound of the gate score over {champion} is above 0 and its mean at least "
                f"{min_effect:g}"
                + ("" if m.metric == "accuracy" else f"; {m.metric} goes {m.direction} by at least {m.size:g}")
            ),
            rollback=f"keep {champion}: {self.factor} stays {in_words(old)}",
            bottleneck=self.bottleneck,
            move=self.name,
            **more,
        )


def in_words(value: Any) -> str:
    """A factor's value in a sentence."""
    value = short(value)
    if value is None:
        return "not set"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}={in_words(v)}" for k, v in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else value if isinstance(value, str) else shown(value, 400)


def relevance(move: Move, symptoms: Mapping[str, float]) -> tuple[float, str]:
    """(severity-weighted fit of the move to the diagnosis, the symptom it answers best).

    Several answered symptoms add up as independent chances: 1 - prod(1 - severity * fit).
    """
    rest, best, name = 1.0, 0.0, ""
    for symptom, fit in sorted(move.remedies.items()):
        strength = fit * symptoms.get(symptom, 0.0)
        rest *= 1 - strength
        if strength > best:
            best, name = strength, symptom
    return 1 - rest, name

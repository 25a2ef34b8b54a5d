"""Candidate moves: one concrete change each, with the prior of its gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evotrainer.agents.symptoms import RewardEvidence
from evotrainer.factors.table import Direction, Move, MoveContext, Variant
from evotrainer.records.briefing import WrittenOffer
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.recipe import Recipe, short
from evotrainer.records.text import shown

FULL, PART = 0.7, 0.3
"""How well a move answers a symptom that it mends, and one that it mends in part."""
GAIN, SD = 0.06, 0.02
"""Prior mean and standard deviation of the gain, score units, of a change that answers a symptom of severity 1 wholly,
where half of the score or more is left to gain."""
IDLE_SD = 0.01
"""Of the gain where no symptom asks for the change: as likely a loss."""
PREDICTED: Mapping[str, tuple[str, Direction, float]] = {
    **dict.fromkeys(("proxy_gap", "special_casing", "edge_crash"), ("proxy_gap", "down", 0.02)),
    **dict.fromkeys(("dead_groups", "saturation", "dead_training"), ("frac_reward_zero_std", "down", 0.03)),
    **dict.fromkeys(("exploration_collapse", "policy_collapse"), ("entropy", "up", 0.02)),
    "off_policy_drift": ("ratio_max", "down", 0.1),
    "truncation": ("completions/clipped_ratio", "down", 0.03),
    "length_gaming": ("completions/mean_length", "down", 1.0),
    "efficiency_collapse": ("completions/mean_length", "up", 2.0),
}
"""Symptom -> metric, direction and size that a change predicts which answers it; of all others, accuracy."""
IMPROVES: tuple[str, Direction, float] = ("accuracy", "up", 0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation(MoveContext):
    """What was observed of the champion, with what reward moves are rated by."""

    start: Recipe
    """The starting recipe, for reverting a factor."""
    evidence: RewardEvidence
    written: tuple[WrittenOffer, ...] = ()
    """Components that the harness wrote, beside those on offer."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Reward component -> the finding by which wrong attempts that are paid lack it."""


def prior(fits: Mapping[str, bool], s: MoveContext) -> tuple[float, float, str]:
    """(mean, standard deviation of the gain in score units, the symptom that is answered best) of a change that answers
    symptoms fully or in part: one rule for all changes.

    Several answered symptoms add up as independent chances: 1 - prod(1 - severity x answer).
    """
    rest, best, name = 1.0, 0.0, ""
    for symptom in sorted(fits):
        strength = (FULL if fits[symptom] else PART) * s.symptoms.get(symptom, 0.0)
        rest *= 1 - strength
        if strength > best:
            best, name = strength, symptom
    fit = 1 - rest
    return fit * GAIN * min(1.0, 2 * s.headroom), IDLE_SD + fit * (SD - IDLE_SD), name


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
    """Compute as a multiple of the champion's training."""

    @property
    def name(self) -> str:
        """Unique name within a round: move and detail."""
        return f"{self.move.name} {self.variant.detail}".strip()

    def intervention(self, situation: Situation, min_effect: float, champion: str, **more: Any) -> Intervention:
        """The falsifiable intervention that is trained; `more`: its forecast, the skills behind it, what it reopens."""
        # what mends a symptom in part may show elsewhere than in its metric: smaller groups of more tasks are deader
        whole = self.move.symptoms().get(self.bottleneck, True)
        metric, way, size = PREDICTED.get(self.bottleneck, IMPROVES) if whole else IMPROVES
        old = situation.recipe.value(self.factor)
        why = self.variant.why or self.move.why
        return Intervention(
            factor=self.factor,
            old=old,
            new=self.variant.value,
            hypothesis=(
                f"if {self.factor} changes from {in_words(old)} to {in_words(self.variant.value)}, {metric} goes "
                f"{way} by at least {size:g}, because {why}"
            ),
            prediction=Prediction(metric=metric, direction=way, size=size),
            success_criterion=(
                f"the judge's lower bound of the gate score over {champion} is above 0 and its mean at least "
                f"{min_effect:g}" + ("" if metric == "accuracy" else f"; {metric} goes {way} by at least {size:g}")
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

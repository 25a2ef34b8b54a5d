"""Search trainings and what they taught: probes, the end of a round's search, knock-outs of a bundle's factors."""

from __future__ import annotations

from evotrainer.records.frozen import Frozen
from evotrainer.records.recipe import fields_of
from evotrainer.records.search import FactorEffect, ProbeSpec, SearchChoice
from evotrainer.records.verdicts import Effect, Estimate


class ProbesOpened(Frozen):
    """id `r<n>/probes/<i>`: search trainings that run side by side; one seed each, read on the search split only. They
    promote nobody."""

    round: int
    index: int
    incumbent: str
    """Branch that their recipes differ from."""
    probes: tuple[ProbeSpec, ...]
    choice: SearchChoice | None = None
    """What the agent would have settled on before these, by its search alone; None: it did not say."""


class Searched(Frozen):
    """id `r<n>/searched`: why a round's search ended, and what is believed of each change by then."""

    round: int
    probes: tuple[str, ...]
    """Probes of this round, in order."""
    stop: str
    effects: tuple[FactorEffect, ...]
    """Of each change that was tried, largest mean first."""
    noise_sd: float
    """Standard deviation of a single training's search score, score units."""
    trainings: int
    """Trainings that the model rests on."""
    choice: SearchChoice | None = None
    """What the agent settles on by its search alone; None: it did not say."""


class KnockedOut(Frozen):
    """id `<branch>/knockout/<factor>`: what a bundle loses without one of its factors, on fresh seeds."""

    round: int
    branch: str
    """The bundle."""
    factor: str
    without: str
    """Branch of the bundle without the factor."""
    effect: Effect
    """The bundle minus the bundle without the factor, on gate."""
    elsewhere: Estimate | None = None
    """The same on search, by the run's other trainings; None where they say nothing of it."""
    together: Estimate | None = None
    """By both; it decides whether the factor stays."""
    kept: bool
    """False: it loses nothing, and the factor is taken out."""
    trials: tuple[str, ...]
    control_trials: tuple[str, ...]
    evaluations: tuple[str, ...] = ()
    """Evaluations that stand in for trials' own scores, where those were made under other environment knobs."""
    noise: str = ""
    """Event with the pooled noise that the interval rests on."""

    @property
    def loss(self) -> str:
        """`without <factor>: -1.2 points [-3.0, +0.6]`: what the bundle without it scores more on fresh seeds."""
        low, mean, high = (0.0 - 100 * x for x in (self.effect.high, self.effect.mean, self.effect.low))
        return f"{self.told}: {mean:+.1f} points [{low:+.1f}, {high:+.1f}]"

    @property
    def told(self) -> str:
        """`without <factor>`, and what else is another in the bundle without it."""
        longer = " (trained for as many steps without going on from a policy)"
        return f"without {self.factor}{longer if 'start' in fields_of(self.factor) else ''}"

"""Search trainings and what they taught: probes, and the end of a round's search."""

from __future__ import annotations

from evotrainer.records.frozen import Frozen
from evotrainer.records.search import FactorEffect, ProbeSpec, SearchChoice


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

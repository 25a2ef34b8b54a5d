"""`[harness.reader]` of a task file, and what `audit --reader` shares with it: who reads rollouts, and how many."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from evotrainer.records.frozen import Frozen
from evotrainer.records.questions import CarrierOptions, ChosenCarrier


class ReaderOptions(CarrierOptions):
    """How a reader is asked about rollouts, and:"""

    retries: int = Field(1, ge=0, le=20)
    """How often a refused answer is asked for again, with the reason."""
    rollouts: int = Field(100, ge=1)
    """Rollouts that are read at most."""
    random: float = Field(0.5, ge=0, le=1)
    """Share of them that is drawn at random of those that nothing nominates: its rate of hacks estimates what
    nominations miss. What one part does not take up the other does."""
    at_once: int = Field(4, ge=1, le=64)
    """Questions under way at once."""

    @property
    def name(self) -> str:
        """Of who reads."""
        return self.model or (Path(self.command[0]).name if self.command else getattr(self, "carrier", ""))


class RunReader(ReaderOptions, ChosenCarrier):
    """Who reads a run's rollouts for reward hacks: of a start, before a promotion, before the certificate
    (docs/reader.md)."""

    section = "harness.reader"
    rollouts: int = Field(200, ge=1)
    """Rollouts that are read in the whole run at most."""
    each: int = Field(40, ge=1)
    """Rollouts of one branch at one reading."""
    limit: float = Field(0.03, gt=0, lt=1)
    """Share of hacks that closes a direction once its lower bound is above it."""


class HarnessConfig(Frozen):
    """Instruments that read rollouts beside the harness's own detectors."""

    reader: RunReader | None = None
    """A language model, a program or a person that reads rollouts one at a time; None: nobody does."""

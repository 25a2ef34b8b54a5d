"""What a task file may set under `run.agent_options` of the agent `seat`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from evotrainer.agents.pooled import PooledOptions
from evotrainer.records.questions import CarrierOptions

NEEDS = {"llm": "model", "command": "command", "replay": "run", "queue": ""}
"""Carrier -> the option that it cannot do without."""


class SeatOptions(CarrierOptions, PooledOptions):
    """Those of the statistical agent, which fills the other places, and:"""

    carrier: Literal["llm", "command", "queue", "replay"]
    """Who is asked: a model behind an endpoint, a program, whoever answers by `evotrainer propose`, the recorded
    answers of a run."""
    share: float = Field(0.3, ge=0, le=1)
    """Share of the trainings that the seat names; the statistical agent names the others and learns from all."""
    requests: int = Field(200, ge=0)
    """Answers in the whole run at most."""
    wall_s: float | None = Field(None, ge=0)
    """Seconds of waiting, all requests together."""
    run: str = ""
    """Of carrier replay: the run whose answers are played."""

    @model_validator(mode="after")
    def _complete(self) -> SeatOptions:
        need = NEEDS[self.carrier]
        if need and not getattr(self, need):
            raise ValueError(f"carrier {self.carrier} needs run.agent_options.{need}")
        return self

    @property
    def statistical(self) -> PooledOptions:
        """The part for the statistical agent."""
        return PooledOptions.model_validate({k: getattr(self, k) for k in PooledOptions.model_fields})

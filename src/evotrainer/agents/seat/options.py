"""What a task file may set under `run.agent_options` of the agent `seat`."""

from __future__ import annotations

from pydantic import Field

from evotrainer.agents.pooled import PooledOptions
from evotrainer.records.questions import ChosenCarrier


class SeatOptions(ChosenCarrier, PooledOptions):
    """Those of the statistical agent, which fills the other places, and:"""

    section = "run.agent_options"
    share: float = Field(0.3, ge=0, le=1)
    """Share of the trainings that the seat names; the statistical agent names the others and learns from all."""
    requests: int = Field(200, ge=0)
    """Answers in the whole run at most."""
    wall_s: float | None = Field(None, ge=0)
    """Seconds of waiting, all requests together."""

    @property
    def statistical(self) -> PooledOptions:
        """The part for the statistical agent."""
        return PooledOptions.model_validate({k: getattr(self, k) for k in PooledOptions.model_fields})

"""Who searches a run where several agents share it: their roles, the part of a recipe that each owns, who answers."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from evotrainer.factors import FACTORS, FAMILIES, family_of
from evotrainer.records.frozen import Frozen

ALL = "all"
"""As a surface: the whole recipe."""


class AgentRow(Frozen):
    """One agent of a roster: a row of `[[run.agents]]`."""

    role: str = Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")
    """Its name; that of a surface, where it owns no other."""
    surface: tuple[str, ...] = ()
    """What it may change: surfaces (reward, signal, data, algorithm, harness), factors, or `all`. Empty: the surface
    that its role names."""
    carrier: str = "statistical"
    """Who answers for it: statistical, or a carrier of a seat."""
    options: dict[str, Any] = {}
    """Of the carrier, as under `run.agent_options` of agent seat."""

    @field_validator("surface", mode="before")
    @classmethod
    def _one(cls, v: Any) -> Any:
        return (v,) if isinstance(v, str) else v

    @property
    def owned(self) -> tuple[str, ...]:
        """Surfaces and factors that it may change."""
        return self.surface or (self.role,)

    def owns(self, factor: str) -> bool:
        """May it change this factor?"""
        return any(x in (ALL, family_of(factor), factor, factor.partition(".")[0]) for x in self.owned)

    def unknown(self) -> str:
        """The first name of the surface that is neither a part of a recipe nor a factor; empty where all are."""
        known = {ALL, *FAMILIES, *FACTORS} - {"knobs"}
        return next((x for x in self.owned if x not in known and not x.startswith("knobs.")), "")


SPECIALISTS = tuple(AgentRow(role=name) for name in FAMILIES)
"""The default roster: one statistical specialist for each surface."""
GENERICS = tuple(AgentRow(role=f"generic{i}", surface=(ALL,)) for i in range(1, 6))
"""The control: as many agents, none of them with a surface of its own."""

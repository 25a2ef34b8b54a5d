"""Who searches a run where several agents share it: their roles, the part of a recipe that each owns, who answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import Field, field_validator

from evotrainer.records.frozen import Frozen

SURFACES: dict[str, tuple[str, ...]] = {
    "reward": ("rewards", "written", "written_reward", "length", "repetition_penalty"),
    "signal": (
        *("group_filter", "resample", "reward_scaling", "negative_weight", "credit", "mask_truncated"),
        *("group_size", "temperature", "top_p"),
    ),
    "data": (
        *("curriculum", "prompts_per_step", "phases", "replay", "prompt_noise", "sft_anchor", "start"),
        *("batch_shape", "phase_plan", "continuation"),
    ),
    "algorithm": (
        *("loss", "clip", "kl_beta", "lr", "schedule", "lr_schedule", "averaging", "weight_decay", "grad_clip"),
        *("steps", "updates_per_step", "is_cap", "entropy_bonus", "hooks"),
    ),
    "harness": ("max_tokens", "max_turns", "deploy_temperature", "knobs.*", "scaffold.*"),
}
"""Surface -> its factors, each factor in one surface. harness: what the policy acts in, not what reads it."""
ALL = "all"
"""As a surface: the whole recipe."""


def surface_of(factor: str) -> str:
    """The surface that a factor belongs to."""
    return next((name for name, owned in SURFACES.items() if _holds(owned, factor)), "algorithm")


def _holds(owned: Iterable[str], factor: str) -> bool:
    return any(factor == x or (x.endswith(".*") and factor.startswith(x[:-1])) for x in owned)


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
        return any(x in (ALL, surface_of(factor)) or _holds((x,), factor) for x in self.owned)


SPECIALISTS = tuple(AgentRow(role=name) for name in SURFACES)
"""The default roster: one statistical specialist for each surface."""
GENERICS = tuple(AgentRow(role=f"generic{i}", surface=(ALL,)) for i in range(1, 6))
"""The control: as many agents, none of them with a surface of its own."""

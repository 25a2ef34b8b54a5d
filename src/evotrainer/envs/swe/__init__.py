"""Repository tasks: a policy repairs a small git repository through tools,
in memory or in a real sandboxed checkout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evotrainer.envs.swe.env import SweEnv


def open_swe(options: Mapping[str, Any], extra: Mapping[str, Any], accept_tier_e: bool) -> SweEnv:
    """The environment of `[environment] name = "swe"`; TaskSetError for options that it does not know."""
    from evotrainer.envs.swe.env import SweEnv, parse_config

    return SweEnv(parse_config(options), components=extra, accept_tier_e=accept_tier_e)

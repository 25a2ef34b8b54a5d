"""Worlds by name: what `[environment] world` of a task file may say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evotrainer.envs.swe.memory import MemoryWorld
from evotrainer.envs.swe.world import World
from evotrainer.errors import TaskSetError

if TYPE_CHECKING:
    from evotrainer.sandbox import Sandbox

WORLDS = ("memory", "real")


def open_world(kind: str, open_sandbox: Callable[[], Sandbox], **options: Any) -> World:
    """`memory` (programs run in the sandbox that `open_sandbox` opens), or `real` (options: those of `RealWorld`)."""
    if kind == "memory":
        return MemoryWorld(open_sandbox)
    if kind == "real":
        from evotrainer.envs.swe.real import RealWorld

        return RealWorld(**options)
    raise TaskSetError(f"unknown world {kind!r}; one of: {', '.join(WORLDS)}")

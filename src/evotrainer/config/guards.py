"""`[[guard]]` of a task file: what a promotion must not cost elsewhere."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from evotrainer.records.frozen import Frozen
from evotrainer.records.recipe import Knob


class GuardConfig(Frozen):
    """Another environment, or data set, on which a promoted policy must be no worse: each a table
    `[[guard]]` (docs/guards.md)."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_]*$")
    """What verdicts and the certificate call it."""
    environment: dict[str, Any]
    """`name` and options, as in the task's own `[environment]`."""
    margin: float = Field(gt=0, lt=1)
    """Largest loss that is put up with, score units: 0.02 is two points. A branch is promoted only where the one-sided
    95% lower bound of its difference, to the base policy and to its control, is not below -margin."""
    split: Literal["train", "search", "gate", "cert"] = "gate"
    """Split of that environment whose tasks are read."""
    tasks: int | None = Field(None, ge=1)
    """Tasks of the split that are read; None: all."""
    attempts: int = Field(4, ge=1)
    """Sampled attempts per task."""
    max_tokens: int | None = Field(None, ge=1)
    """Most tokens of an answer here; None: as in the run's evaluations."""
    max_turns: int | None = Field(None, ge=1)
    """Most turns of an episode here; None: as in the run's evaluations."""
    knobs: dict[str, Knob] = {}
    """Environment knobs of that environment."""

"""Trackers that a run's figures are also exported to (docs/tracking.md); their room is imported when one is named."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.registry import Registry

if TYPE_CHECKING:
    from evotrainer.config.task import TrackingConfig
    from evotrainer.run.observer import Observer


@dataclass(frozen=True, slots=True)
class Tracking:
    """A row of `TRACKERS`."""

    check: Callable[[tuple[str, ...], dict[str, Any]], None]
    """(`tracking.to`, `tracking.options`): raises what is wrong or not installed; imports no client."""
    following: Callable[[Path, Any, Any], contextlib.AbstractContextManager[Any]]
    """(run folder, `[tracking]`, observer) -> the observer to run under."""


TRACKERS: Registry[Tracking] = Registry(
    "tracker",
    "tracking.to",
    dict.fromkeys(("tensorboard", "mlflow", "wandb", "trackio"), "evotrainer.extras.tracking:TRACKING"),
)
"""Name in the task file (`tracking.to`) -> what exports to it."""


def check_trackers(section: TrackingConfig) -> None:
    """Every tracker that is named is known and installed; ConfigError, MissingDependencyError."""
    for name in [*section.to, *section.options][:1]:
        TRACKERS[name].check(section.to, section.options)


def following(folder: Path, section: TrackingConfig, view: Observer) -> contextlib.AbstractContextManager[Any]:
    """The observer to run under: one that exports as well where a tracker is named."""
    return TRACKERS[section.to[0]].following(folder, section, view) if section.to else contextlib.nullcontext(view)

"""Trackers that a run's figures are also exported to (docs/tracking.md); their room is imported when one is named."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.registry import Registry

if TYPE_CHECKING:
    from evotrainer.config.task import TrackingConfig
    from evotrainer.run.observer import Observer


TRACKERS: Registry[Any] = Registry(
    "tracker",
    "tracking.to",
    dict.fromkeys(("tensorboard", "mlflow", "wandb", "trackio"), "evotrainer.extras.tracking:TRACKING"),
)
"""Name in the task file (`tracking.to`) -> `extras.tracking.Tracking`, which exports to it."""


def check_trackers(section: TrackingConfig) -> None:
    """Every tracker that is named is known and installed; ConfigError, MissingDependencyError."""
    if section.to or section.options:  # one object knows them all
        TRACKERS[next(iter(section.to), "tensorboard")].check(section.to, section.options)


def following(folder: Path, section: TrackingConfig, view: Observer) -> contextlib.AbstractContextManager[Any]:
    """The observer to run under: one that exports as well where a tracker is named."""
    return TRACKERS[section.to[0]].following(folder, section, view) if section.to else contextlib.nullcontext(view)

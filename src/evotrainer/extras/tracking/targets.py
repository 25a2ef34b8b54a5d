"""Where figures are exported to: one small class per tracker, each over the tracker's own Python client.

A target writes whole sheets. `write` may be called with further points of a sheet it wrote before; `known` says up to
which step it holds points already where the exporter was stopped between writing and noting it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError, MissingDependencyError, install
from evotrainer.extras.tracking.figures import Target
from evotrainer.extras.tracking.to_mlflow import Mlflow, MlflowOptions
from evotrainer.extras.tracking.to_tensorboard import TensorBoard, TensorBoardOptions
from evotrainer.extras.tracking.to_trackio import Trackio, TrackioOptions
from evotrainer.extras.tracking.to_wandb import Wandb, WandbOptions
from evotrainer.records.frozen import Frozen, parsed

TARGETS: Mapping[str, tuple[type, type[Frozen]]] = {
    "tensorboard": (TensorBoard, TensorBoardOptions),
    "mlflow": (Mlflow, MlflowOptions),
    "wandb": (Wandb, WandbOptions),
    "trackio": (Trackio, TrackioOptions),
}
"""Name -> class, and its options. Each is also the name of its client's package and of our extra."""


def packages(name: str, options: Frozen) -> tuple[str, ...]:
    """Packages that a target imports."""
    database = isinstance(options, MlflowOptions) and (not options.place or options.place.startswith("sqlite:"))
    return (name, "sqlalchemy", "alembic") if database else (name,)


def parse_target(name: str, options: Mapping[str, Any]) -> Frozen:
    """The target's options as a model; ConfigError names what is wrong. Imports no client."""
    if name not in TARGETS:
        raise ConfigError(f"unknown tracker {name!r}; one of: {', '.join(TARGETS)}")
    return parsed(TARGETS[name][1], options, f"tracking.options.{name}")


def check_targets(names: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Before anything is spent: every target's package is there and its options are understood. Imports no client.

    Raises ConfigError, MissingDependencyError.
    """
    for name in options:
        if name not in TARGETS:
            raise ConfigError(f"tracking.options.{name}: no such tracker; one of: {', '.join(TARGETS)}")
    for name in names:
        of_name = options.get(name, {})
        if not isinstance(of_name, Mapping):
            raise ConfigError(f"tracking.options.{name} is {of_name!r}, a table of options expected")
        for package in packages(name, parse_target(name, of_name)):
            if find_spec(package) is None:
                raise MissingDependencyError(
                    f"tracking to {name} needs {package}, which is not installed; {install(name)}, "
                    "or take it out of tracking.to"
                )


def open_target(name: str, folder: Path, project: str, options: Mapping[str, Any]) -> Target:
    """The target, with its client imported; raises whatever the client raises."""
    made: Target = TARGETS[name][0](folder, project, parse_target(name, options))
    return made

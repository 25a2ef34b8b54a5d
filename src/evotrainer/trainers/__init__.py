"""Trainers: what trains a policy by a recipe. Importing this package loads no machine-learning library."""

from __future__ import annotations

from evotrainer.errors import ConfigError
from evotrainer.trainers.base import Trainer

TRAINERS = ("embedded",)


def get_trainer(name: str) -> Trainer:
    """The trainer of this name; ConfigError for an unknown one, MissingDependencyError where its libraries lack."""
    if name == "embedded":
        from evotrainer.trainers.embedded import EmbeddedTrainer

        return EmbeddedTrainer()
    raise ConfigError(f"unknown trainer {name!r}; one of: {', '.join(TRAINERS)}")

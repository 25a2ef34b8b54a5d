"""Trainers: what trains a policy by a recipe. Importing this package loads no machine-learning library."""

from __future__ import annotations

from evotrainer.errors import ConfigError, MissingDependencyError
from evotrainer.trainers.base import Trainer

TRAINERS = ("embedded",)
LIBRARIES = {"embedded": ("torch", "safetensors", "tokenizers")}


def check_installed(name: str) -> None:
    """MissingDependencyError where a library of this trainer is not installed; imports nothing."""
    from importlib.util import find_spec

    for library in LIBRARIES.get(name, ()):
        try:
            found = find_spec(library) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            raise MissingDependencyError(
                f"the {name} trainer needs {library}, which is not installed; "
                "run: pip install torch==2.13.0, then pip install 'evotrainer[local]'"
            )


def get_trainer(name: str) -> Trainer:
    """The trainer of this name; ConfigError for an unknown one, MissingDependencyError where its libraries lack."""
    if name == "embedded":
        from evotrainer.trainers.embedded import EmbeddedTrainer

        return EmbeddedTrainer()
    raise ConfigError(f"unknown trainer {name!r}; one of: {', '.join(TRAINERS)}")

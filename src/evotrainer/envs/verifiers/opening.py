"""Opens `verifiers:ID`: tasks of one turn, or episodes by a harness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evotrainer.envs.base import Environment
from evotrainer.envs.verifiers.episodes import VerifiersEpisodes
from evotrainer.envs.verifiers.options import VerifiersConfig, check_folder
from evotrainer.envs.verifiers.single_turn import VerifiersEnv
from evotrainer.errors import TaskSetError
from evotrainer.records.frozen import parsed


def open_verifiers(options: Mapping[str, Any]) -> Environment:
    """`[environment]` with name = "verifiers:ID". Raises TaskSetError, MissingDependencyError."""
    config = parsed(VerifiersConfig, options, f"environment {options['name']!s}", TaskSetError)
    check_folder(config.path)
    if config.harness is None:
        if given := sorted({"env", "rewards", "at_once", "turn_s", "start_s"} & config.model_fields_set):
            raise TaskSetError(f'environment.{given[0]} is for episodes: set environment.harness = "chat", too')
        return VerifiersEnv(config)
    return VerifiersEpisodes(config)

"""Maths: generated problems with short chains of thought, and data sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from evotrainer.envs.base import EnvironmentSpec
from evotrainer.errors import TaskSetError

if TYPE_CHECKING:
    from evotrainer.envs.maths.env import MathEnv
    from evotrainer.envs.maths.rewards import Component


def open_math(options: Mapping[str, object], components: Mapping[str, Component] | None = None) -> MathEnv:
    """`[environment]` with name = "math": a data set where there is a `source` (`dataset.MathDataConfig`), otherwise
    generated problems (`source.MathConfig`). Raises TaskSetError."""
    from evotrainer.envs.maths.env import MathEnv

    if "source" in options:
        from evotrainer.envs.maths.dataset import MathRows
        from evotrainer.envs.maths.dataset import parse_config as parse_data

        return MathEnv(MathRows(parse_data(options)), components=components)
    from evotrainer.envs.maths.source import GeneratedSource, MathConfig
    from evotrainer.records.frozen import parsed

    config = parsed(MathConfig, options, "environment math", TaskSetError)
    return MathEnv(GeneratedSource(config), components=components)


MATH = EnvironmentSpec(lambda options, _, extra: open_math(options, extra), generated=True)

"""Repository tasks: a policy repairs a git repository through tools: small generated ones in memory, issues of real
ones in a sandboxed checkout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evotrainer.envs.base import Environment, EnvironmentSpec
from evotrainer.errors import TaskSetError


def open_swe(options: Mapping[str, Any], accept_tier_e: bool, extra: Mapping[str, Any]) -> Environment:
    """`[environment]` with name = "swe": issues of a data set where there is a `source`, otherwise generated
    repositories. TaskSetError for options that it does not know."""
    if "source" in options:
        from evotrainer.envs.swe.instance_env import InstancesConfig, InstancesEnv
        from evotrainer.records.frozen import parsed

        return InstancesEnv(parsed(InstancesConfig, options, "environment swe", TaskSetError), extra)
    from evotrainer.envs.swe.env import SweEnv, parse_config

    return SweEnv(parse_config(options), components=extra, accept_tier_e=accept_tier_e)


SWE = EnvironmentSpec(open_swe, generated=True)

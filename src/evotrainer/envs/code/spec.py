"""Row of `envs.registry.ENVIRONMENTS` for programs: generated tasks, or a data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evotrainer.envs.base import Environment, EnvironmentSpec
from evotrainer.envs.code.probing import ProbeOptions
from evotrainer.errors import TaskSetError
from evotrainer.records.frozen import parsed

if TYPE_CHECKING:
    from evotrainer.envs.components import Component


def open_code(options: Mapping[str, Any], accept_tier_e: bool, extra: Mapping[str, Component]) -> Environment:
    """`[environment]` with name = "code": a data set where there is a `source`, otherwise generated tasks."""
    from evotrainer.envs.code.env import CodeEnv
    from evotrainer.envs.code.source import CodeConfig, GrammarSource

    if "source" not in options:
        c = parsed(CodeConfig, options, "environment code", TaskSetError)
        return CodeEnv(GrammarSource(c), components=extra, accept_tier_e=accept_tier_e, probes=c)
    from evotrainer.envs.code.admission import keep_admitted
    from evotrainer.envs.code.formats import CodeDataConfig, code_source

    o = parsed(CodeDataConfig, options, "environment code", TaskSetError)
    environment = CodeEnv(code_source(o), components=extra, accept_tier_e=accept_tier_e, probes=o)
    try:
        if o.admit:
            keep_admitted(environment)
    except BaseException:
        environment.close()
        raise
    return environment


CODE = EnvironmentSpec(open_code, generated=True, probes=ProbeOptions)

"""Rows of `envs.registry.ENVIRONMENTS` for programs: generated tasks, data sets, a user's rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from evotrainer.envs.base import Environment, EnvironmentSpec
from evotrainer.envs.code.probing import ProbeOptions
from evotrainer.envs.options import parse_options

if TYPE_CHECKING:
    from evotrainer.envs.code.env import CodeEnv
    from evotrainer.envs.components import Component


class DatasetConfig(ProbeOptions):
    """`[environment]` with name = "mbpp" or "humaneval"."""

    name: str
    path: str
    splits: dict[str, float] | None = None
    visible: int = Field(0, ge=0)
    hf_config: str | None = None
    hf_split: str = "test"
    cpu_s: float = Field(5.0, gt=0)
    admit: bool = True
    """Leave out tasks that their own solution does not solve."""


class JsonlConfig(ProbeOptions):
    """`[environment]` with name = "jsonl"."""

    name: str
    path: str
    visible: int = Field(2, ge=0)
    heldout: int = Field(0, ge=0)
    splits: dict[str, float] | None = None
    show: bool = False
    perturb: bool = False
    cpu_s: float = Field(2.0, gt=0)
    admit: bool = True
    """Leave out tasks that their own `solution` does not solve."""


def open_code(options: Mapping[str, Any], accept_tier_e: bool, extra: Mapping[str, Component]) -> Environment:
    """`[environment]` with name = "code": a data set where there is a `source`, otherwise generated tasks."""
    from evotrainer.envs.code.env import CodeEnv
    from evotrainer.envs.code.source import CodeConfig, GrammarSource

    if "source" in options:
        from evotrainer.envs.code.formats import CodeDataConfig, code_source

        o = parse_options(CodeDataConfig, options, "code")
        world = CodeEnv(code_source(o), components=extra, accept_tier_e=accept_tier_e, probes=o)
        return _admitted(world, o.admit)
    c = parse_options(CodeConfig, options, "code")
    return CodeEnv(GrammarSource(c), components=extra, accept_tier_e=accept_tier_e, probes=c)


def open_rows(options: Mapping[str, Any], accept_tier_e: bool, extra: Mapping[str, Component]) -> Environment:
    """`[environment]` with name = "mbpp", "humaneval" or "jsonl"."""
    from evotrainer.envs.code.env import CodeEnv
    from evotrainer.envs.code.functions import dataset_source
    from evotrainer.envs.code.jsonl import jsonl_source

    name = options["name"]
    parsed = parse_options(JsonlConfig if name == "jsonl" else DatasetConfig, options, name)
    o = parsed.model_dump(exclude={"name", *ProbeOptions.model_fields})
    wanted, path = o.pop("admit"), o.pop("path")
    source = jsonl_source(path, **o) if name == "jsonl" else dataset_source(name, path, **o)
    return _admitted(CodeEnv(source, components=extra, accept_tier_e=accept_tier_e, probes=parsed), wanted)


def _admitted(environment: CodeEnv, wanted: bool) -> Environment:
    """The environment, without tasks that their own solutions do not solve."""
    if wanted:
        from evotrainer.envs.code.admission import keep_admitted

        try:
            keep_admitted(environment)
        except BaseException:
            environment.close()
            raise
    return environment


CODE = EnvironmentSpec(open_code, generated=True, probes=ProbeOptions)
ROWS = EnvironmentSpec(open_rows, probes=ProbeOptions)

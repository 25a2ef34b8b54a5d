"""Environments by name, as `[environment]` of a task file gives it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from evotrainer.envs.base import Environment
from evotrainer.envs.code.probing import ProbeOptions
from evotrainer.envs.components import Component, load_components
from evotrainer.envs.options import parse_options
from evotrainer.envs.outcome import OPTION, check_payable, payable_components
from evotrainer.envs.user_files import call, load_module
from evotrainer.errors import TaskSetError

if TYPE_CHECKING:
    from evotrainer.envs.code.env import CodeEnv


def _user_environment(name: str, options: Mapping[str, Any]) -> Environment:
    """`python:path/to/file.py:factory`; further options are passed to the factory as keywords."""
    path, colon, factory = name.removeprefix("python:").rpartition(":")
    if not colon or not path or not factory:
        raise TaskSetError(f"environment {name!r} is not of the form python:path/to/file.py:factory")
    make = getattr(load_module(Path(path)), factory, None)
    if not callable(make):
        raise TaskSetError(f"{path} has no function {factory!r}; define it, it must return an environment")
    _check_keywords(path, factory, make, options)
    environment = call(f"{path}: {factory}({', '.join(options)})", partial(make, **options))
    if not isinstance(environment, Environment):
        missing = sorted(a for a in _members() if not hasattr(environment, a))
        raise TaskSetError(
            f"{path}: {factory} returned {type(environment).__name__}, which is no environment: "
            f"it lacks {', '.join(missing)}"
        )
    return environment


def _check_keywords(path: str, factory: str, make: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """TaskSetError for an option that the factory does not take."""
    try:
        taken = inspect.signature(make).parameters
    except (TypeError, ValueError):  # a callable that tells nothing of itself
        return
    if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        return
    for name in options:
        if name not in taken:
            near = get_close_matches(name, [*taken, OPTION], 1)
            there = f"it takes {', '.join(taken)}" if taken else "it takes none"
            hint = (
                f"did you mean environment.{near[0]}?" if near else f"{there}; leave it out, or let {factory} take it"
            )
            raise TaskSetError(f"environment.{name}: {path}: {factory} takes no option of this name; {hint}")


def _members() -> set[str]:
    names = set(Environment.__annotations__)
    return names | {n for n, f in vars(Environment).items() if inspect.isfunction(f) and not n.startswith("_")}


def _code(options: Mapping[str, Any], accept_tier_e: bool, extra: Mapping[str, Component]) -> Environment:
    from evotrainer.envs.code.env import CodeEnv
    from evotrainer.envs.code.source import CodeConfig, GrammarSource

    if "source" in options:
        from evotrainer.envs.code.formats import CodeDataConfig, code_source

        o = parse_options(CodeDataConfig, options, "code")
        world = CodeEnv(code_source(o), components=extra, accept_tier_e=accept_tier_e, probes=o)
        return _admitted(world, o.admit)
    c = parse_options(CodeConfig, options, "code")
    return CodeEnv(GrammarSource(c), components=extra, accept_tier_e=accept_tier_e, probes=c)


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


class _DatasetConfig(ProbeOptions):
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


class _JsonlConfig(ProbeOptions):
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


def _rows_of_code(options: Mapping[str, Any], accept_tier_e: bool, extra: Mapping[str, Component]) -> Environment:
    from evotrainer.envs.code.env import CodeEnv
    from evotrainer.envs.code.functions import dataset_source
    from evotrainer.envs.code.jsonl import jsonl_source

    name = options["name"]
    parsed = parse_options(_JsonlConfig if name == "jsonl" else _DatasetConfig, options, name)
    o = parsed.model_dump(exclude={"name", *ProbeOptions.model_fields})
    wanted, path = o.pop("admit"), o.pop("path")
    source = jsonl_source(path, **o) if name == "jsonl" else dataset_source(name, path, **o)
    return _admitted(CodeEnv(source, components=extra, accept_tier_e=accept_tier_e, probes=parsed), wanted)


def _maths(options: Mapping[str, Any], accept_tier_e: bool, extra: Mapping[str, Any]) -> Environment:
    from evotrainer.envs.maths import open_gsm8k, open_math

    return (open_gsm8k if options["name"] == "gsm8k" else open_math)(options, extra)


def _swe(options: Mapping[str, Any], accept_tier_e: bool, extra: Mapping[str, Any]) -> Environment:
    from evotrainer.envs.swe import open_swe

    if options["name"] == "swe-instances" or "source" in options:
        from evotrainer.envs.swe.instance_env import open_instances

        return open_instances(options, extra)
    return open_swe(options, extra, accept_tier_e)


Factory = Callable[[Mapping[str, Any], bool, Mapping[str, Component]], Environment]
FACTORIES: dict[str, Factory] = {
    "code": _code,
    "mbpp": _rows_of_code,
    "humaneval": _rows_of_code,
    "jsonl": _rows_of_code,
    "swe": _swe,
    "swe-instances": _swe,
    "math": _maths,
    "gsm8k": _maths,
}


def open_environment(config: Mapping[str, Any], *, accept_tier_e: bool = False) -> Environment:
    """The environment a task file's `[environment]` section describes; close it after use.

    `name`: one of FACTORIES, `python:path/to/file.py:factory`, or of TRL `trl:path/to/file.py:Class` and
    `trl-rewards:path/to/file.py:function`. `reward_file`: a Python file whose functions become
    further reward components. `payable`: outcome components that training may pay, whose names are checked here.
    Other keys are the environment's own. Raises TaskSetError.
    """
    payable = payable_components(config)
    environment = _opened({k: v for k, v in config.items() if k != OPTION}, accept_tier_e)
    try:
        check_payable(environment, payable)
    except BaseException:
        environment.close()
        raise
    return environment


GENERATED = ("code", "math", "swe")
"""Environments that generate their tasks, and are opened without a sandbox, a file or a connection."""


def make_ahead(config: Mapping[str, Any]) -> None:
    """Make what every process with this environment makes: tasks of train and search, where they are generated.

    They are kept for the next `open_environment` of this process and its forks. Does nothing for other environments.
    """
    if config.get("name") not in GENERATED or {"source", "reward_file"} & set(config):
        return
    with contextlib.closing(open_environment(config)) as environment:
        for split in ("train", "search"):
            environment.tasks(split)


def _opened(options: dict[str, Any], accept_tier_e: bool) -> Environment:
    name = options.get("name")
    if not isinstance(name, str) or not name:
        raise TaskSetError(f"environment has no name; one of: {', '.join(FACTORIES)}, python:FILE:FACTORY")
    if name.startswith("python:"):
        options.pop("name")
        return _user_environment(name, options)
    if name.startswith(("trl:", "trl-rewards:")):
        from evotrainer.envs.trl_env import open_trl

        return open_trl(options)
    if name not in FACTORIES:
        near = get_close_matches(name, FACTORIES, 1)
        hint = (
            f"did you mean {near[0]}?" if near else f"one of: {', '.join(FACTORIES)}, or python:path/to/file.py:factory"
        )
        raise TaskSetError(f"environment.name: unknown environment {name!r}; {hint}")
    rewards = options.pop("reward_file", None)
    extra = load_components(Path(str(rewards))) if rewards else {}
    return FACTORIES[name](options, accept_tier_e, extra)


def probe_options(config: Mapping[str, Any]) -> ProbeOptions | None:
    """How programs are probed under this `[environment]`; None where the environment runs no probes."""
    if FACTORIES.get(str(config.get("name", "code"))) not in (_code, _rows_of_code):
        return None
    return ProbeOptions(**{k: v for k, v in config.items() if k in ProbeOptions.model_fields})

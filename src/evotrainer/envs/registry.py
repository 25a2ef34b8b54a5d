"""Environments by name, as `[environment]` of a task file gives it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from evotrainer.envs.base import Environment, EnvironmentSpec
from evotrainer.envs.components import load_components
from evotrainer.envs.outcome import OPTION, check_payable, payable_components
from evotrainer.envs.user_files import call, load_module
from evotrainer.errors import TaskSetError
from evotrainer.registry import Registry


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


_DATA = 'write name = "{}", source = a file, a folder or hf:org/name, and format = "{}" (docs/datasets.md)'
ENVIRONMENTS: Registry[EnvironmentSpec] = Registry(
    "environment",
    "environment.name",
    {
        "code": "evotrainer.envs.code.spec:CODE",
        "swe": "evotrainer.envs.swe:SWE",
        "math": "evotrainer.envs.maths:MATH",
    },
    hints={
        "mbpp": _DATA.format("code", "mbpp"),
        "humaneval": _DATA.format("code", "humaneval"),
        "jsonl": _DATA.format("code", "stdin"),
        "gsm8k": _DATA.format("math", "gsm8k"),
        "swe-instances": _DATA.format("swe", "swe-bench"),
    },
    own="python:path/to/file.py:factory",
    error=TaskSetError,
)
"""Name in the task file -> what opens the environment."""
SCHEMES: Registry[Callable[[Mapping[str, Any]], Environment]] = Registry(
    "environment",
    "environment.name",
    {
        **dict.fromkeys(("trl", "trl-rewards"), "evotrainer.envs.trl_env:open_trl"),
        "reasoning-gym": "evotrainer.envs.reasoning_gym:open_gym",
        "verifiers": "evotrainer.envs.verifiers.opening:open_verifiers",
    },
)
"""Scheme before the colon of a name -> what opens the user's file by it; `python:` is ours."""


def open_environment(config: Mapping[str, Any], *, accept_tier_e: bool = False) -> Environment:
    """The environment a task file's `[environment]` section describes; close it after use.

    `name`: one of ENVIRONMENTS, `python:path/to/file.py:factory`, or of TRL `trl:path/to/file.py:Class` and
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


def make_ahead(config: Mapping[str, Any]) -> None:
    """Make what every process with this environment makes: tasks of train and search, where they are generated.

    They are kept for the next `open_environment` of this process and its forks. Does nothing for other environments.
    """
    name = str(config.get("name"))
    if name not in ENVIRONMENTS or {"source", "reward_file"} & set(config) or not ENVIRONMENTS[name].generated:
        return
    with contextlib.closing(open_environment(config)) as environment:
        for split in ("train", "search"):
            environment.tasks(split)


def _opened(options: dict[str, Any], accept_tier_e: bool) -> Environment:
    name = options.get("name")
    if not isinstance(name, str) or not name:
        raise TaskSetError(f"environment has no name; {ENVIRONMENTS.names()}")
    scheme, colon, _ = name.partition(":")
    if scheme == "python" and colon:
        options.pop("name")
        return _user_environment(name, options)
    if scheme in SCHEMES and colon:
        return SCHEMES[scheme](options)
    spec = ENVIRONMENTS[name]
    rewards = options.pop("reward_file", None)
    extra = load_components(Path(str(rewards))) if rewards else {}
    return spec.open(options, accept_tier_e, extra)


def probe_options(config: Mapping[str, Any]) -> Any:
    """How programs are probed under this `[environment]`; None where the environment runs no probes."""
    name = str(config.get("name"))
    model = ENVIRONMENTS[name].probes if name in ENVIRONMENTS else None
    return model and model(**{k: v for k, v in config.items() if k in model.model_fields})

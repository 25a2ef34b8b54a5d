"""Callables that users hand over, in every form that TRL takes: functions, methods, functools.partial, instances of
classes with `__call__`; sync or async."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from evotrainer.envs.user_files import call, load_module
from evotrainer.errors import TaskSetError
from evotrainer.records.text import shown


def unwrapped(f: Any) -> Any:
    """What a functools.partial calls, however deep."""
    while isinstance(f, functools.partial):
        f = f.func
    return f


def callable_name(f: Any) -> str:
    """As TRL names it (`get_callable_name`): that of the function, or of the instance's class."""
    f = unwrapped(f)
    return str(getattr(f, "__name__", type(f).__name__))


def first_line(f: Any) -> str:
    """First line of a callable's docstring: what it measures. Of an instance its class's, or `__call__`'s."""
    f = unwrapped(f)
    text = inspect.getdoc(f) or ("" if hasattr(f, "__name__") else inspect.getdoc(type(f).__call__))
    return (text or "").strip().split("\n")[0]


def is_async(f: Any) -> bool:
    """Is what it returns awaited? As TRL asks (`is_async_callable`)."""
    f = unwrapped(f)
    return inspect.iscoroutinefunction(f) or inspect.iscoroutinefunction(getattr(f, "__call__", None))  # noqa: B004


NO_CHANCE = (AttributeError, TypeError, NameError, ImportError)
"""What is wrong with the code itself: a service may answer in the trial, a missing name is missing there too."""


def check_signature(name: str, f: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """TaskSetError where a reward function cannot take what TRL hands it by name."""
    try:
        inspect.signature(f).bind(**given)
    except TypeError as e:
        raise TaskSetError(
            f"reward function {name!r} cannot be called as TRL calls it: {e}; it is handed {', '.join(given)} by name: "
            "name what it needs of them, and let **kwargs take the rest"
        ) from None
    except ValueError:  # some builtins tell nothing of themselves
        pass


def named_arguments(f: Callable[..., Any]) -> tuple[str, ...]:
    """Arguments that a callable names; empty for one that tells nothing of itself (some builtins)."""
    try:
        return tuple(inspect.signature(f).parameters)
    except ValueError:
        return ()


def called(f: Callable[..., Any], given: Mapping[str, Any]) -> list[Any] | Exception:
    """What a reward function gives, or raises, but for errors of ours. One that is awaited has an event loop in a
    thread of its own: here one may be at work, as a notebook's."""
    try:
        if is_async(f):
            with ThreadPoolExecutor(1) as thread:
                return list(thread.submit(lambda: asyncio.run(f(**given))).result())
        return list(f(**given))
    except TaskSetError:
        raise
    except Exception as e:
        return e


def find(spec: str, what: str) -> Any:
    """What FILE.py:NAME names, NAME with dots too (judge.score); TaskSetError where there is nothing."""
    path, colon, name = spec.rpartition(":")
    if not colon or not path or not name:
        raise TaskSetError(f"{spec!r} is not of the form FILE.py:{what}")
    if not path.endswith(".py") and not Path(path).exists() and "/" not in path:
        raise TaskSetError(
            f"{spec!r} names no file; what a library brings is imported in one of yours (from {path} import {name}) "
            f"and named there: ./FILE.py:{name}"
        )
    try:
        return functools.reduce(getattr, name.split("."), load_module(Path(path)))
    except AttributeError:
        raise TaskSetError(f"{path} has no {what} {name!r}; define it") from None


def reward_functions(specs: Sequence[str], renamed: dict[str, str] | None = None) -> dict[str, Callable[..., Any]]:
    """Name -> TRL reward function of each FILE.py:NAME, of a list each in it.

    A function is called as TRL calls it; what has no name of its own (functools.partial, an instance, a lambda), or
    shares it, as the task file does; `renamed` takes why another is not. TaskSetError where two have one name, or where
    something is no reward function.
    """
    found: list[tuple[str, str, Callable[..., Any]]] = []
    for spec in dict.fromkeys(specs):
        value, given = find(spec, "function"), spec.rpartition(":")[2].rpartition(".")[2]
        if isinstance(value, list | tuple):
            found += [(callable_name(f := _reward(x, spec)), f"{given}_{n}", f) for n, x in enumerate(value, 1)]
        else:
            found.append((name := str(getattr(f := _reward(value, spec), "__name__", "")), given, f))
            if renamed is not None and name != given:
                renamed[given] = f"{spec} is called {name}, as that is its own name"
    own, out = Counter(name for name, _, _ in found), {}
    for name, given, f in found:
        name = name if own[name] == 1 and name.isidentifier() and name[:2] != "__" else given
        if name in out:
            raise TaskSetError(f"two reward functions are called {name!r}; give one another name in its file")
        out[name] = f
    if not out:
        raise TaskSetError(f"{', '.join(specs)}: an empty list; give a reward function")
    return out


def _reward(f: Any, spec: str) -> Any:
    """A value as a reward function; TaskSetError says what else it is, and what to write."""
    if isinstance(f, str) or any(k.__module__.startswith("torch.nn.") for k in type(f).__mro__):
        what = f"{shown(f, 60)}, a reward model" if isinstance(f, str) else "a reward model"
        raise TaskSetError(f"{spec} is {what}, which EvoTrainer does not load; give a function that asks it")
    if inspect.isclass(f):
        raise TaskSetError(f"{spec} is a class; give an instance of it (judge = {f.__name__}() in the file)")
    if not callable(f):
        raise TaskSetError(f"{spec} is {type(f).__name__} {shown(f, 60)}, no function; define one")
    try:
        str(getattr(unwrapped(f), "__name__", ""))
    except Exception:  # TRL and inspect would ask it as well
        return lambda *args, **columns: f(*args, **columns)
    return f


def environment_class(spec: str) -> type:
    """The class of TRL's `environment_factory`: FILE.py:NAME, or of whatever NAME makes when it is called."""
    found = find(spec, "Class")
    if isinstance(found, Mapping):
        raise TaskSetError(f"{spec} maps names to environments; name one of them, a task file trains in one")
    if not callable(found):
        raise TaskSetError(f"{spec} is {type(found).__name__} {shown(found, 60)}; give a class with a reset method")
    kind = found if inspect.isclass(found) else _made_by(found, spec)
    if not callable(getattr(kind, "reset", None)):
        raise TaskSetError(f"{spec}: not a class with a reset method, as TRL's environment_factory wants it")
    return kind


def _made_by(factory: Callable[[], Any], spec: str) -> type:
    """The class of what a function or functools.partial makes, whose instances it makes."""
    kind = type(call(f"the environment factory {spec}", factory))

    def made(cls: type) -> Any:
        instance = factory()
        instance.__class__ = cls
        return instance

    own = {"__module__": kind.__module__, "__slots__": (), "__new__": made, "__init__": lambda self: None}
    return type(kind.__name__, (kind,), own)

"""Stands in for the tests' objects in the solution's process, which may call, advance, read or only compare them."""

from __future__ import annotations

import inspect
from typing import Any, Protocol


class Callbacks(Protocol):
    """Asks the tests' process to call (`cb`), advance (`nx`) or read (`st`) one of its objects."""

    def back(
        self, operation: str, number: int, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any: ...


class OpaqueObject:
    """An object of the tests: it can be handed back, and equals only itself."""

    def __init__(self, name: str) -> None:
        self.__name = name

    def __repr__(self) -> str:
        return f"<the tests' {self.__name}>"


class Iterator:
    """An iterator of the tests."""

    def __init__(self, solution: Callbacks, number: int) -> None:
        self._next = lambda: solution.back("nx", number)

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        return self._next()


class Stream:
    """A file of the tests."""

    def __init__(self, solution: Callbacks, number: int) -> None:
        self._ask = lambda name, args: solution.back("st", number, (name, *args))

    def __getattr__(self, name: str) -> Any:
        if name not in ("read", "readline", "readlines", "write", "writelines", "seek", "tell", "flush", "getvalue"):
            raise AttributeError(name)
        return lambda *args: self._ask(name, args)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        if not (line := self._ask("readline", ())):
            raise StopIteration
        return line


def function_of(solution: Callbacks, number: int, about: dict[str, Any], defaults: Any) -> Any:
    """A function here that is called there; it has its name and signature."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return solution.back("cb", number, args, kwargs)

    function.__name__, function.__qualname__, function.__module__, function.__doc__ = about["n"]
    if about["p"] is not None:
        parameters = [
            inspect.Parameter(n, inspect._ParameterKind(kind), default=defaults.get(n, inspect.Parameter.empty))
            for n, kind in about["p"]
        ]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function

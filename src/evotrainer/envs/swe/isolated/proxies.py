"""The solution as the tests see it: modules, classes and objects whose every use is a request to the other process.

An answer is data. Truths that a plain value would decide here (`==`, `<`, `in`, arithmetic, an exception swallowed by
`__exit__`) are believed of the solution's objects only at the places of the tests where the reference fix needs it.
"""

from __future__ import annotations

import builtins
import collections.abc
import types
from collections.abc import Callable
from typing import Any, Protocol

from evotrainer.envs.swe.isolated.special_methods import FORWARDED, OPERATORS
from evotrainer.envs.swe.isolated.wire import CONTENT

_NUMBER = "_evotrainer_number"
_TEXT = "_evotrainer_text"
GATED = frozenset({"__eq__", "__ne__", "__contains__", *(f"__{n}__" for n in OPERATORS)})
_RESULTS: dict[str, type] = {
    "__len__": int, "__bool__": bool, "__hash__": int, "__contains__": bool, "__index__": int, "__int__": int,
    "__float__": float, "__complex__": complex, "__repr__": str, "__str__": str, "__format__": str, "__dir__": list,
    "__bytes__": bytes, "__length_hint__": int,
}  # fmt: skip
_CONTROL_FLOW = (StopIteration, StopAsyncIteration, GeneratorExit, KeyboardInterrupt)
"""Raised here these could end a loop or the run silently; they arrive as RuntimeError."""


class Requests(Protocol):
    """The part of the session that proxies use."""

    def request(self, operation: str, number: int, name: str = "", args: Any = (), kwargs: Any = None) -> Any: ...

    def gate(self, operation: str) -> None: ...

    def equal(self, number: int, other: Any) -> Any: ...

    def constructed(self, number: int, args: Any, kwargs: Any, value: Any) -> None: ...


SESSION: list[Requests] = []


def number_of(value: Any) -> int | None:
    """Number of a proxy, None for everything else."""
    if isinstance(value, Meta):
        return type.__getattribute__(value, "__dict__").get(_NUMBER)
    if isinstance(type(value), Meta):
        return object.__getattribute__(value, "__dict__").get(_NUMBER)
    return value.number if type(value) is Module else None


def _number(value: Any) -> int:
    if (number := number_of(value)) is None:
        raise TypeError("a class that the tests derive from one of the solution's has no instances across the boundary")
    return number


def _hidden(name: str) -> bool:
    """Names by which test runners ask an object what it is: the solution has no say in that."""
    return name.startswith(("_pytest", "pytest", "__unittest", "_evotrainer")) or name in (
        "__test__", "__tracebackhide__", "__signature__", "__class__", "__dict__"
    )  # fmt: skip


def _doc(value: Any) -> Any:
    return SESSION[0].request("get", number, "__doc__") if (number := number_of(value)) else None


class Meta(type):
    """Class of the proxies of classes."""

    @property
    def __doc__(cls) -> Any:  # type: ignore[override]
        return _doc(cls)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        found = SESSION[0].request("call", _number(cls), "", args, kwargs)
        SESSION[0].constructed(_number(cls), args, kwargs, found)
        return found

    def __getattr__(cls, name: str) -> Any:
        if _hidden(name) or (number := number_of(cls)) is None:
            raise AttributeError(name)
        return SESSION[0].request("get", number, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        if (number := number_of(cls)) is None or name.startswith("__abstract"):
            type.__setattr__(cls, name, value)
        else:
            SESSION[0].request("set", number, name, [value])
            if name in vars(cls):
                type.__setattr__(cls, name, value)

    def __delattr__(cls, name: str) -> None:
        SESSION[0].request("delete", _number(cls), name)
        if name in vars(cls):
            type.__delattr__(cls, name)


def _meta(names: list[str]) -> type[Meta]:
    """A metaclass for classes that are iterable, have a length, ... themselves (enumerations)."""
    allowed = [n for n in names if n in ("__iter__", "__len__", "__getitem__", "__contains__")]
    return type("Meta", (Meta,), {n: forwarded(n) for n in allowed}) if allowed else Meta


def forwarded(name: str) -> Callable[..., Any]:
    """A special method that is asked of the solution; its result has the type that Python demands."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name in GATED:
            SESSION[0].gate(name)
        found = SESSION[0].request("special", _number(self), name, args, kwargs)
        if name in _RESULTS and type(found) is not _RESULTS[name]:
            raise TypeError(f"{name} returned {type(found).__name__}")
        return found

    method.__name__ = name
    return method


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return SESSION[0].request("call", _number(self), "", args, kwargs)


def _equal(self: Any, other: Any) -> Any:
    return SESSION[0].equal(_number(self), other)


def _exit(self: Any, kind: Any, error: Any, trace: Any) -> bool:
    """Only where the fix does so as well may the solution swallow an exception, and never a failed assertion."""
    swallowed = SESSION[0].request("special", _number(self), "__exit__", (kind, error, None)) is True
    if not swallowed or error is None:
        return False
    SESSION[0].gate("swallow")
    return isinstance(error, Exception) and not isinstance(error, AssertionError)


def _within(self: Any, value: Any) -> bool:
    """`in` of an object that can only be iterated: it decides as well."""
    SESSION[0].gate("__contains__")
    return any(x is value or x == value for x in self)


_OWN: dict[str, Any] = {"__call__": _call, "__eq__": _equal, "__exit__": _exit}


class SolutionObject(metaclass=Meta):
    """An object of the solution."""

    def __getattr__(self, name: str) -> Any:
        if _hidden(name) or (number := number_of(self)) is None:
            raise AttributeError(name)
        return SESSION[0].request("get", number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(self, BaseException) and name in ("__traceback__", "__context__", "__cause__", "__notes__"):
            object.__setattr__(self, name, value)
        else:
            SESSION[0].request("set", _number(self), name, [value])

    def __delattr__(self, name: str) -> None:
        SESSION[0].request("delete", _number(self), name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("an object of the solution cannot be pickled across the boundary")

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return _doc(self)


for _name in ("__repr__", "__str__", "__format__", "__dir__", "__copy__", "__deepcopy__"):
    type.__setattr__(SolutionObject, _name, forwarded(_name))


class Module(types.ModuleType):
    """A module of the solution. What it held when it was imported is what the tests see, containers apart."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(name)
        object.__setattr__(self, "number", number)
        object.__setattr__(self, "held", None)

    def fill(self, names: list[str], held: dict[str, Any], public: list[str]) -> None:
        """Taken once, when the module is imported."""
        if self.held is None:
            object.__setattr__(self, "held", held)
            object.__setattr__(self, "names", names)
            object.__setattr__(self, "__all__", public or [n for n in names if n[0] != "_"])

    def __getattr__(self, name: str) -> Any:
        held = object.__getattribute__(self, "held")
        if _hidden(name) or name in ("__path__", "__file__", "__all__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if held is not None and name in held:
            return held[name]
        if held is not None and name not in self.names:  # it may be made to fit what was asked before
            SESSION[0].gate("late name")
        return SESSION[0].request("get", self.number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:2] == "__" or isinstance(value, Module):
            object.__setattr__(self, name, value)
            return
        SESSION[0].request("set", self.number, name, [value])
        if self.held is not None:
            self.held[name] = value

    def __delattr__(self, name: str) -> None:
        SESSION[0].request("delete", self.number, name)
        if self.held is not None:
            self.held.pop(name, None)

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *(getattr(self, "names", None) or ())]


def make_class(number: int, about: dict[str, Any], bases: list[Any], members: dict[str, Any]) -> type:
    """The proxy of a class; its bases are proxies, builtin exceptions and immutable builtin classes."""
    kept: list[type] = [_safe(b) for b in bases if isinstance(b, Meta) or b in CONTENT or _is_error(b)]
    names = [n for n in about["d"] if n in FORWARDED]
    space: dict[str, Any] = {n: _OWN.get(n) or forwarded(n) for n in names}
    if "__contains__" not in space and {"__iter__", "__getitem__"} & space.keys():
        space["__contains__"] = _within
    if about["unhashable"] is True:
        space["__hash__"] = None
    elif "__eq__" in space and "__hash__" not in space:
        space["__hash__"] = forwarded("__hash__")
    if any(_is_error(b) for b in kept):
        space["__str__"] = lambda self: object.__getattribute__(self, "__dict__").get(_TEXT, "")
    space |= {
        _NUMBER: number,
        "__doc__": property(_doc),
        "__module__": str(about["m"]),
        "__qualname__": str(about["q"]),
    }
    remote = () if any(isinstance(b, Meta) for b in kept) else (SolutionObject,)
    meta = _meta(about["meta"])
    try:
        found = meta(str(about["n"]), (*remote, *kept), space)
    except TypeError:  # bases that do not fit together
        found = meta(
            str(about["n"]), (SolutionObject, Exception) if any(map(_is_error, kept)) else (SolutionObject,), space
        )
    for name, member in members.items():
        type.__setattr__(found, name, member)
    for name in about["abc"]:
        if (abc := getattr(collections.abc, str(name), None)) is not None and isinstance(abc, type):
            abc.register(found)  # type: ignore[attr-defined]
    return found


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _safe(base: type) -> type:
    if isinstance(base, Meta) or base in CONTENT:
        return base
    return RuntimeError if issubclass(base, _CONTROL_FLOW) or not hasattr(builtins, base.__name__) else base


def make_object(number: int, cls: Any, about: dict[str, Any], content: Any) -> Any:
    """The proxy of an object; ValueError where the solution's description makes none."""
    if not isinstance(cls, Meta):
        raise ValueError("an object without a class")
    base = next((c for c in CONTENT if issubclass(cls, c)), None)
    if base is None:
        found: Any = object.__new__(cls)  # type: ignore[arg-type]
    elif type(content) is base:
        found = base.__new__(cls, content)  # type: ignore[call-overload]
    else:
        raise ValueError("an object without its content")
    _mark(found, number)
    if "f" in about:
        for name, text in zip(("__name__", "__qualname__", "__module__"), about["f"], strict=True):
            object.__setattr__(found, name, str(text))
    return found


def make_error(number: int, cls: Any, args: list[Any], text: str) -> BaseException:
    """The proxy of an exception: of a builtin class as that, of the solution's own as an instance of its proxy."""
    if not _is_error(cls):
        raise ValueError("an exception without a class")
    name = cls.__name__
    if isinstance(cls, Meta):
        error: BaseException = cls.__new__(cls, *args)  # type: ignore[arg-type]
        BaseException.__init__(error, *args)
        _mark(error, number)
        object.__setattr__(error, _TEXT, text)
        return error
    if not issubclass(cls, (Exception, SystemExit)) or issubclass(cls, _CONTROL_FLOW):
        return RuntimeError(f"{name}: {text}")
    try:
        error = cls(*args)
    except Exception:
        error = RuntimeError(f"{name}: {text}")
    return error


def _mark(value: Any, number: int) -> None:
    object.__setattr__(value, _NUMBER, number)

"""Keeps the objects that one side has of the other: numbers for ours that were sent, proxies for theirs.

Raises TypeError for an object of the tests that must not travel, ValueError and the like for what is malformed.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from typing import Any

from evotrainer.envs.swe.isolated import proxies
from evotrainer.envs.swe.isolated.wire import CALLS, LAZY, is_special, special, unspecial
from evotrainer.sandbox.values import Opaque, decode, encode

STREAMS = (io.StringIO, io.BytesIO, io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom)
_CATCHES_FAILURES = (AssertionError, Exception, BaseException)
PLAIN = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, type(None))


class References:
    """Of the tests' side. `fail`: notes why the current test is lost, and gives the error to raise."""

    def __init__(self, fail: Callable[[str], BaseException]) -> None:
        self.fail = fail
        self.theirs: dict[int, Any] = {}
        """Number -> proxy."""
        self.ours: dict[int, Any] = {}
        """Number, below 0 -> object of the tests."""
        self.numbers: dict[int, int] = {}
        """id() of such an object -> its number."""
        self.last = 0
        self.new: dict[int, Any] = {}
        """Descriptions of objects for the message that is being made."""
        self.lasting = True
        """Objects sent now stay valid for the whole run: the test modules are being imported."""

    def begin(self) -> None:
        """A test starts: objects that the last one sent are no longer the solution's to use."""
        if self.lasting:
            self.lasting, self.first = False, self.last
        for number in [n for n in self.ours if -n > self.first]:
            self.numbers.pop(id(self.ours.pop(number)), None)

    def new_descriptions(self) -> dict[str, Any]:
        """New descriptions for the message; each is sent once."""
        found, self.new = self.new, {}
        return {str(n): about for n, about in found.items()}

    def encoded(self, value: Any) -> Any:
        return encode(value, self.keep)

    def keep(self, value: Any) -> int:
        """Number of a proxy, or of an object of the tests that the solution may call or hand back."""
        if (number := proxies.number_of(value)) is not None:
            return number
        if (number := self.numbers.get(id(value))) is not None:
            return number
        about = self._about(value)
        self.last += 1
        number = -self.last
        self.ours[number], self.numbers[id(value)] = value, number
        self.new[number] = about
        return number

    def _about(self, value: Any) -> dict[str, Any]:
        """Description of an object of the tests for the solution. TypeError for one that must not travel."""
        if (plain := special(value, everything=True)) is not None:
            return plain
        if isinstance(value, type) and issubclass(value, BaseException):
            bases = [self.encoded(b) for b in value.__bases__]
            return {"k": "exception class", "n": value.__name__, "m": value.__module__, "b": bases}
        if isinstance(value, BaseException):
            return {"k": "exception", "c": self.encoded(type(value)), "a": self.encoded(_args(value))}
        if isinstance(value, LAZY):
            return {"k": "iterator"}
        if type(value) in STREAMS:
            return {"k": "stream"}
        if not isinstance(value, (*CALLS, type)) and _own_equality(value):  # it could be handed back as a wrong answer
            raise TypeError(f"a {type(value).__name__} with an equality of its own does not cross the boundary")
        if callable(value):
            return self._function(value)
        return {"k": "object", "n": type(value).__name__}

    def _function(self, value: Any) -> dict[str, Any]:
        texts = [getattr(value, n, None) for n in ("__name__", "__qualname__", "__module__", "__doc__")]
        texts_sent = [
            t if type(t) is str else d for t, d in zip(texts, ("function", "function", "tests", None), strict=True)
        ]
        try:
            signature: Any = inspect.signature(value).parameters.values()
        except (ValueError, TypeError):
            return {"k": "function", "n": texts_sent, "p": None, "d": {"t": "dict", "v": []}}
        defaults = {p.name: p.default for p in signature if p.default is not p.empty}
        return {
            "k": "function",
            "n": texts_sent,
            "p": [[p.name, int(p.kind)] for p in signature],
            "d": self.encoded(defaults),
        }

    def decoded(self, value: Any, new: dict[str, Any]) -> Any:
        return decode(value, lambda found: self.resolve(found, new))

    def resolve(self, found: Opaque, new: dict[str, Any]) -> Any:
        number = found.handle
        if number < 0:
            if number not in self.ours:
                raise self.fail("an object of another test")
            return self.ours[number]
        if number not in self.theirs:
            if type(new) is not dict or type(about := new.pop(str(number), None)) is not dict:
                raise ValueError("an unknown object")
            self.theirs[number] = self._proxy(number, about, new)
        return self.theirs[number]

    def _proxy(self, number: int, about: dict[str, Any], new: dict[str, Any]) -> Any:
        if is_special(about):
            known = unspecial(about)
            if any(known is caught for caught in _CATCHES_FAILURES):
                raise self.fail(
                    f"{known.__name__} under a name of the code under test: it would catch failed assertions"
                )
            return known
        kind = about["k"]
        if kind == "module":
            return proxies.Module(text_of(about["n"]), number)
        if kind == "class":
            members = {text_of(n): m for n, m in about["members"].items()}
            bases = [self.decoded(b, new) for b in about["b"]]
            found = self.theirs[number] = proxies.make_class(number, about, bases, {})
            for name, member in members.items():
                type.__setattr__(found, name, self.decoded(member, new))
            return found
        cls = self.decoded(about["c"], new)
        if number in self.theirs:  # made with its class: a member of an enumeration
            return self.theirs[number]
        if kind == "object":
            content = self.decoded(about["v"], new) if "v" in about else None
            return proxies.make_object(number, cls, about, content)
        if kind == "exception":
            error = proxies.make_error(number, cls, self.decoded(about["a"], new), text_of(about["s"]))
            if about.get("f") is not None:
                cause = self.decoded(about["f"], new)
                error.__cause__ = cause if isinstance(cause, BaseException) else None
            return error
        raise ValueError("an object of no kind")


def text_of(value: Any) -> str:
    """ValueError for anything else than text."""
    if type(value) is not str:
        raise ValueError("not text")
    return value


def _args(error: BaseException) -> list[Any]:
    """What the solution sees of the arguments of an exception of the tests: plain values, others as text."""
    return [a if type(a) in PLAIN else str(a)[:1000] for a in error.args]


def _own_equality(value: Any) -> bool:
    from unittest.mock import NonCallableMock

    return type(value).__eq__ is not object.__eq__ and not isinstance(value, NonCallableMock)

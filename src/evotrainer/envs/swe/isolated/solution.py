"""The solution's process: imports the policy's checkout and does what the tests' process asks of it.

Nothing here guards a verdict: the policy's code may rewrite all of it. Whatever is sent from here is only data there.
"""

from __future__ import annotations

import collections
import collections.abc
import enum
import importlib
import io
import sys
import threading
import types
import warnings
from typing import Any

from evotrainer.envs.swe.isolated.remote_objects import Iterator, OpaqueObject, Stream, function_of
from evotrainer.envs.swe.isolated.special_methods import FORWARDED, FUNCTIONS
from evotrainer.envs.swe.isolated.wire import CONTENT, Wire, WireError, is_special, special, unspecial
from evotrainer.sandbox.values import Opaque, decode, encode

_MUTABLE = (list, dict, set, bytearray)
Container = (list, dict, set, tuple, frozenset, collections.deque, bytearray)
_ABCS = tuple(n for n in collections.abc.__all__ if n not in ("ByteString", "Buffer"))


class _Recorder(io.TextIOBase):
    """A standard stream: what is printed travels with the next answer."""

    def __init__(self, parts: list[list[Any]], fd: int) -> None:
        self.parts, self.fd_name = parts, fd

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.parts.append([self.fd_name, str(text)])
        return len(text)


class Solution:
    """Answers one request after another; callbacks of the tests are answered in between."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.lock = threading.RLock()
        self.kept: list[Any] = [None]
        self.numbers: dict[int, int] = {}
        self.classes: dict[type, int] = {}
        self.theirs: dict[int, Any] = {}
        self.new: list[int] = []
        self.printed: list[list[Any]] = []
        self.warned: list[list[Any]] = []
        self.arguments: list[Any] = []

    # values

    def keep(self, value: Any) -> int:
        """Number of an object that does not travel."""
        number = self.numbers.get(id(value))
        if number is None:
            number = len(self.kept)
            self.kept.append(value)
            self.numbers[id(value)] = number
            self.new.append(number)
        return number

    def encoded(self, value: Any) -> Any:
        return encode(value, self.keep)

    def class_of(self, value: Any) -> Any:
        """Its class, encoded; one of the standard library gets a proxy too."""
        kind = type(value)
        if special(kind) is None:
            return self.encoded(kind)
        if kind not in self.classes:
            self.classes[kind] = self.keep(_ClassOf(kind))
        return {"t": "opaque", "v": ["class", self.classes[kind]]}

    def pack(self, **message: Any) -> dict[str, Any]:
        """The message, with what is new in it."""
        about: dict[str, Any] = {}
        while self.new:
            number = self.new.pop()
            try:
                about[str(number)] = self.about(self.kept[number])
            except Exception:
                self.numbers.pop(id(self.kept[number]), None)
                raise
        return {**message, "new": about}

    def about(self, value: Any) -> dict[str, Any]:
        """Description from which the tests' process makes a proxy."""
        if (plain := special(value)) is not None:
            return plain
        if isinstance(value, type):
            return self._class(value)
        if type(value) is _ClassOf:
            return self._class(value.kind)
        if isinstance(value, types.ModuleType):
            return {"k": "module", "n": value.__name__}
        kind = type(value)
        if isinstance(value, BaseException):
            return self._exception(value)
        about = {"k": "object", "c": self.class_of(value)}
        content = next((c for c in CONTENT if issubclass(kind, c)), None)
        if content is not None:
            about["v"] = self.encoded(_content(content, value))
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
            about["f"] = [str(getattr(value, n, "")) for n in ("__name__", "__qualname__", "__module__")]
        return about

    def _class(self, value: type) -> dict[str, Any]:
        own = [c for c in type.mro(value) if c not in (object, *CONTENT)]
        has = sorted({n for c in own for n in vars(c) if n in FORWARDED and vars(c)[n] is not None})
        held = value.__members__ if isinstance(value, enum.EnumMeta) else _constants(value)
        members = {n: self.encoded(m) for n, m in held.items()}
        meta = {n for c in type.mro(type(value)) if c not in (type, object) for n in vars(c)}
        return {
            "k": "class",
            "n": value.__name__,
            "q": value.__qualname__,
            "m": str(getattr(value, "__module__", "")),
            "b": [self.encoded(b) for b in value.__bases__ if b is not object],
            "d": has,
            "meta": sorted(meta & {"__iter__", "__len__", "__getitem__", "__contains__"}),
            "abc": [n for n in _ABCS if _subclass(value, getattr(collections.abc, n))],
            "members": members,
            "unhashable": value.__hash__ is None,
        }

    def _exception(self, error: BaseException) -> dict[str, Any]:
        try:
            text = str(error)
        except Exception:
            text = ""
        cause = error.__cause__
        return {
            "k": "exception",
            "c": self.encoded(type(error)),
            "a": self.encoded(list(error.args)),
            "s": text[:100_000],
            "f": None if cause is None else self.encoded(cause),
        }

    def resolve(self, found: Opaque, new: dict[str, Any]) -> Any:
        if found.handle > 0:
            return self.kept[found.handle]
        if found.handle not in self.theirs:
            about = new[str(found.handle)]
            self.theirs[found.handle] = self._foreign(found.handle, about, new)
            if not is_special(about):
                self.numbers[id(self.theirs[found.handle])] = found.handle
        return self.theirs[found.handle]

    def _foreign(self, number: int, about: dict[str, Any], new: dict[str, Any]) -> Any:
        """Our proxy of an object of the tests: something to call, to advance, to raise, or nothing but itself."""
        if is_special(about):
            return unspecial(about, everything=True)
        kind = about["k"]
        if kind == "function":
            return function_of(self, number, about, self.decoded(about["d"], new))
        if kind == "iterator":
            return Iterator(self, number)
        if kind == "stream":
            return Stream(self, number)
        if kind == "exception class":
            bases = tuple(self.decoded(b, new) for b in about["b"])
            return type(about["n"], bases, {"__module__": about["m"]})
        if kind == "exception":
            return self.decoded(about["c"], new)(*self.decoded(about["a"], new))
        return OpaqueObject(about.get("n", "object"))

    def decoded(self, value: Any, new: dict[str, Any]) -> Any:
        return decode(value, lambda found: self.resolve(found, new))

    # requests

    def serve(self) -> None:
        """Serve until the tests' process is done."""
        while True:
            try:
                message = self.wire.receive()
            except WireError as error:
                print(error, file=sys.__stderr__)
                return
            self.answer(message)

    def answer(self, message: dict[str, Any]) -> None:
        try:
            args = self.decoded(message.get("a", []), message.get("new", {}))
            kwargs = self.decoded(message.get("k", {}), message.get("new", {}))
            before = [(i, v, encode(v, self.keep)) for i, v in enumerate(args) if type(v) in _MUTABLE]
            try:
                reply = {"v": self.encoded(self.do(message, args, kwargs))}
            finally:
                changed = [[i, now] for i, v, old in before if (now := self.encoded(v)) != old]
            reply["m"] = changed
        except BaseException as error:
            reply = {"stop": True} if _ended(message, error) else {"e": error}
        reply |= {"out": self.printed[:], "warn": self.warned[:]}
        self.printed.clear()
        self.warned.clear()
        self.reply(reply)

    def reply(self, reply: dict[str, Any]) -> None:
        """Send an answer; one that cannot be told is an error of that request only."""
        try:
            if "e" in reply:
                reply["e"] = self.encoded(reply["e"])
            self.wire.send(self.pack(**reply))
        except WireError:
            raise
        except Exception as error:
            self.new.clear()
            problem = RuntimeError(f"cannot be told: {type(error).__name__} {error}"[:300])
            self.wire.send(self.pack(e=self.encoded(problem)))

    def do(self, message: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """One operation on one of our objects."""
        operation = message["o"]
        if operation == "import":
            return importlib.import_module(message["n"])
        target = self.kept[message["h"]]
        if operation == "get":
            return getattr(target, message["n"])
        if operation == "set":
            return setattr(target, message["n"], *args)
        if operation == "delete":
            return delattr(target, message["n"])
        if operation == "names":
            return [[str(n) for n in getattr(target, "__all__", ())], *_names(target)]
        if operation == "about":
            self.new.append(message["h"])
            return None
        if operation == "call":
            return target(*args, **kwargs)
        return self.special_method(target, message["n"], args, kwargs)

    def special_method(self, target: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name == "__exit__":
            return bool(type(target).__exit__(target, *args))
        if name in FUNCTIONS:
            return FUNCTIONS[name](target, *args)
        return getattr(type(target), name)(target, *args, **kwargs)

    # callbacks

    def back(
        self, operation: str, number: int, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Have an object of the tests called, advanced or read; its result, or its exception."""
        with self.lock:
            packed = self.pack(**{operation: number, "a": self.encoded(list(args)), "k": self.encoded(kwargs or {})})
            self.wire.send(packed)
            while True:
                message = self.wire.receive()
                if "o" not in message:
                    break
                self.answer(message)
        new = message.get("new", {})
        if "stop" in message:
            raise StopIteration
        if "e" in message:
            raise self.decoded(message["e"], new)
        return self.decoded(message["v"], new)


def _names(target: Any) -> tuple[list[str], dict[str, Any]]:
    """Names of a module, and what they hold where that is no container
    (containers are read when they are asked for)."""
    names = [n for n in dir(target) if n[:2] != "__"]
    found = {n: getattr(target, n, None) for n in names}
    return names, {n: v for n, v in found.items() if special(v) is not None or not isinstance(v, Container)}


def _constants(value: type) -> dict[str, Any]:
    """Objects that a class holds, methods and plain values apart."""
    found = {n: v for n, v in vars(value).items() if n[:1] != "_" and not hasattr(type(v), "__get__")}
    return {n: v for n, v in found.items() if special(v) is None and type(v).__module__ != "builtins"}


def _content(content: type, value: Any) -> Any:
    if content is tuple:
        return tuple(tuple.__iter__(value))
    if content is str:
        return str.__str__(value) if type(str.__str__(value)) is str else "".join(str.__iter__(value))
    if content is frozenset:
        return frozenset(frozenset.__iter__(value))
    if content is bytes:
        return bytes(bytes.__iter__(value))
    return {int: int.__int__, float: float.__float__, complex: complex.__complex__}[content](value)


def _ended(message: dict[str, Any], error: BaseException) -> bool:
    """Has an iterator of ours come to its end?"""
    return message.get("n") == "__next__" and type(error) is StopIteration


def _subclass(value: type, of: type) -> bool:
    try:
        return issubclass(value, of)
    except TypeError:
        return False


class _ClassOf:
    """Stands for a class of the standard library as the class of an object."""

    def __init__(self, kind: type) -> None:
        self.kind = kind


def main(request: dict[str, Any]) -> None:
    """Serve on descriptor 3 until the tests' process is done."""
    solution = Solution(Wire(3))
    sys.stdout = _Recorder(solution.printed, 1)
    sys.stderr = _Recorder(solution.printed, 2)
    warnings.simplefilter("always")

    def warned(message: Any, category: type, *rest: Any, **more: Any) -> None:
        solution.warned.append([solution.encoded(category), str(message)])

    warnings.showwarning = warned
    try:
        solution.serve()
    except BaseException:
        sys.stderr = sys.__stderr__
        raise

"""Candidate and tester: two confined children that only exchange encoded values, relayed by the parent.

tester -> candidate   {"n": name, "a": args, "k": kwargs}        in this order: the parent passes on what starts so
candidate -> tester   {"v": value, "m": [[index, value], ...]}   m: arguments the call changed in place
                      {"e": [type, message]}                     it raised
tester -> parent      {"done": true} or {"fail": [type, message]}
"""

from __future__ import annotations

import builtins
import json
import os
from typing import Any

from evotrainer.sandbox.inside.cases import (
    CaseTimeout,
    describe,
    fresh_module,
    start_timer,
    write_all,
)
from evotrainer.sandbox.values import Opaque, decode, encode

_MUTABLE = (list, dict, set, bytearray)
_CONTROL_FLOW = ("StopIteration", "StopAsyncIteration", "GeneratorExit", "SystemExit", "KeyboardInterrupt")
"""Raised in the tester these could end a loop or the test silently; they arrive as RuntimeError."""


class Lines:
    """Newline-framed JSON over one socket descriptor, blocking."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.buffer = bytearray()

    def read(self) -> Any:
        """The next message; EOFError when the other side is gone."""
        while (end := self.buffer.find(b"\n")) < 0:
            piece = os.read(self.channel, 1 << 18)
            if not piece:
                raise EOFError("the other side is gone")
            self.buffer += piece
        line = bytes(self.buffer[:end])
        del self.buffer[: end + 1]
        return json.loads(line)

    def write(self, message: Any) -> None:
        """Send one message."""
        write_all(self.channel, json.dumps(message).encode() + b"\n")


class CandidateRelay:
    """Serves calls of the candidate's functions; whatever it answers is only data to the tester."""

    def __init__(self, request: dict[str, Any], channel: int) -> None:
        self.lines = Lines(channel)
        self.source: str = request["source"]
        self.cpu_s: float = request["cpu_s"]
        self.kept: list[Any] = []
        self.fault: list[str] | None = None
        self.names: dict[str, Any] = {}

    def _keep(self, value: Any) -> int:
        self.kept.append(value)
        return len(self.kept) - 1

    def _resolve(self, found: Opaque) -> Any:
        if not 0 <= found.handle < len(self.kept):
            raise ValueError(f"an argument of type {found.type} cannot travel")
        return self.kept[found.handle]

    def run(self) -> None:
        """Define everything, then answer calls until the tester is done."""
        start_timer(self.cpu_s)
        module = fresh_module("solution")
        try:
            exec(compile(self.source, "<candidate>", "exec", dont_inherit=True), module.__dict__)
        except CaseTimeout:
            os._exit(97)
        except BaseException as error:
            self.fault = describe(error)
        self.names = module.__dict__
        while True:
            try:
                call = self.lines.read()
            except EOFError:
                return
            self.lines.write(self._answer(call))

    def _answer(self, call: dict[str, Any]) -> dict[str, Any]:
        if self.fault:
            return {"e": self.fault}
        try:
            args = decode(call["a"], self._resolve)
            function = self.names.get(call["n"])
            if function is None:
                return {"e": ["NameError", f"the program defines no {call['n']}"]}
            # encoded, so that what the call left can be compared with exact types, whatever it did to the objects
            before = [encode(v) if type(v) in _MUTABLE else None for v in args]
            value = function(*args, **decode(call["k"], self._resolve))
            changed = self._changed(args, before)
            return {"v": encode(value, self._keep), "m": changed}
        except CaseTimeout:
            os._exit(97)
        except BaseException as error:
            return {"e": describe(error)}

    def _changed(self, args: list[Any], before: list[Any]) -> list[Any]:
        """Arguments that the call changed, to be changed in the tester too."""
        after = [encode(v) if b is not None else None for v, b in zip(args, before, strict=True)]
        return [[i, v] for i, (v, b) in enumerate(zip(after, before, strict=True)) if v != b]


class CandidateError(Exception):
    """The candidate raised something that is no builtin exception."""


def _rebuild(error: Any) -> Exception:
    """The candidate's exception as the builtin of that name."""
    try:
        name, text = error
        name, text = str(name), str(text)
    except (TypeError, ValueError):
        return CandidateError("malformed answer")
    if name in _CONTROL_FLOW:
        return RuntimeError(f"{name}: {text}")
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except TypeError:  # the Unicode errors and exception groups want more arguments
            return CandidateError(f"{name}: {text}")
    return CandidateError(f"{name}: {text}")


def _restore(target: Any, value: Any) -> None:
    """Give a tester-side container the content its proxy has in the candidate."""
    if type(target) is not type(value):
        return
    if type(target) in (list, bytearray):
        target[:] = value
    else:
        target.clear()
        target.update(value)


class RemoteObject:
    """A candidate's object that cannot travel: can be passed back, equals only itself, has no other behaviour."""

    __slots__ = ("_found",)

    def __init__(self, found: Opaque) -> None:
        self._found = found

    def __repr__(self) -> str:
        return f"<candidate's {self._found.type}>"


def _handle(value: Any) -> int:
    return value._found.handle if type(value) is RemoteObject else -1


class Tester:
    """Runs the trusted test code; functions of the candidate are proxies."""

    def __init__(self, request: dict[str, Any], channel: int) -> None:
        self.lines = Lines(channel)
        self.entries: list[str] = request["entries"]
        self.test: str = request["source"]
        self.cpu_s: float = request["cpu_s"]

    def proxy(self, name: str) -> Any:
        """A function that runs in the candidate's process."""

        def call(*args: Any, **kwargs: Any) -> Any:
            message = {"n": name, "a": encode(list(args), _handle), "k": encode(kwargs, _handle)}
            self.lines.write(message)
            answer = self.lines.read()
            if not isinstance(answer, dict) or ("e" not in answer and "v" not in answer):
                raise CandidateError("malformed answer")
            if "e" in answer:
                raise _rebuild(answer["e"])
            self._apply(args, answer.get("m") or [])
            return decode(answer["v"], RemoteObject)

        call.__name__ = name
        return call

    @staticmethod
    def _apply(args: tuple[Any, ...], changes: list[Any]) -> None:
        try:
            for index, value in changes:
                if type(args[index]) in _MUTABLE:
                    _restore(args[index], decode(value, RemoteObject))
        except (TypeError, ValueError, IndexError):
            raise CandidateError("malformed answer") from None

    def run(self) -> None:
        """Run the tests and say how they went."""
        try:
            start_timer(self.cpu_s)
            module = fresh_module("tests")
            proxies = {name: self.proxy(name) for name in self.entries}
            module.__dict__.update(proxies)
            exec(compile(self.test, "<tests>", "exec", dont_inherit=True), module.__dict__)
            check = module.__dict__.get("check")
            # a candidate's function may be called check: then there is no check(candidate) of the tests to call
            if check is not None and check is not proxies.get("check"):
                # again: the tests' own text may have defined functions of these names
                module.__dict__.update(proxies)
                check(proxies[self.entries[0]])
        except CaseTimeout:
            os._exit(97)
        except BaseException as error:
            self.lines.write({"fail": describe(error)})
            return
        self.lines.write({"done": True})

"""The tests' side of the boundary: sends requests, answers callbacks,
turns what comes back into plain values and proxies."""

from __future__ import annotations

import functools
import random
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

from evotrainer.envs.swe.isolated import proxies
from evotrainer.envs.swe.isolated.decoys import unequal_values
from evotrainer.envs.swe.isolated.references import PLAIN, STREAMS, References, text_of
from evotrainer.envs.swe.isolated.wire import LAZY, Wire, WireError

_MUTABLE = (list, dict, set, bytearray)
_STREAM_CALLS = frozenset(
    {"read", "readline", "readlines", "write", "writelines", "seek", "tell", "flush", "getvalue"}
)  # fmt: skip
_HARMLESS = (
    int, float, complex, str, bytes, bool, list, tuple, dict, set, frozenset,
    abs, len, max, min, ord, chr, repr, round, sorted, sum,
)  # fmt: skip
MAX_PRINTED = 1 << 20


class BoundaryError(BaseException):
    """The solution broke the protocol or claimed what is not believed. No test catches it by `except Exception`."""


class SolutionSession:
    """One connection. `allowed`: places where the solution's objects may decide; None: all, and they are noted."""

    def __init__(self, wire: Wire, allowed: frozenset[str] | None, folder: str) -> None:
        self.wire = wire
        self.lock = threading.RLock()
        self.allowed = allowed
        self.folder = folder
        self.places: set[str] = set()
        self.gated = False
        """Did an object of the solution decide anything in this test?"""
        self.broken = ""
        self.fault = ""
        self.references = References(self.fail)
        self.made: dict[int, tuple[int, list[Any]]] = {}
        self.random = random.SystemRandom()

    def begin(self) -> None:
        """A test starts: objects that the last one sent are no longer the solution's to use."""
        self.references.begin()
        self.fault, self.gated = "", False

    def fail(self, why: str) -> BoundaryError:
        self.fault = self.fault or why
        return BoundaryError(why)

    # places

    def place(self) -> str:
        """File and line of the test's code that is running."""
        frame: Any = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.startswith(self.folder):
            frame = frame.f_back
        return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def gate(self, operation: str) -> None:
        """An object of the solution is about to decide something."""
        place = f"{self.place()}:{operation}"
        self.gated = True
        if self.allowed is None:
            self.places.add(place)
        elif place not in self.allowed:
            raise self.fail(
                f"with the reference fix no object of the code under test decides {operation} here ({place})"
            )

    def equal(self, number: int, other: Any) -> Any:
        """`==` of one of the solution's objects: it must tell the value from others like it, asked in any order.

        Which others it tells apart is noted with the reference fix, by their place in `_decoys`.
        """
        self.gate("__eq__")
        place = f"{self.place()}:__eq__"
        decoys = self._decoys(other)
        if self.allowed is None:
            found = self.request("special", number, "__eq__", [other])
            if found is not True:
                return found
            claims = [self._claims_difference(number, make) for make in decoys]
            self.places |= {f"{place}:{k}" for k, differs in enumerate(claims) if differs}
            return True
        known = [make for k, make in enumerate(decoys) if f"{place}:{k}" in self.allowed]
        # The value itself is asked about twice, in no known place:
        # who believes the first question that it hears guesses.
        questions: list[Callable[[], Any] | None] = [*self.random.sample(known, min(5, len(known))), None, None]
        self.random.shuffle(questions)
        found = [self.request("special", number, "__eq__", [other]) for make in questions if self._passed(number, make)]
        return found[0] if found[0] is found[1] else False

    def _passed(self, number: int, make: Callable[[], Any] | None) -> bool:
        """May the value itself be compared now? Unlike values must be told apart from it."""
        if make is not None and not self._claims_difference(number, make):
            raise self.fail("an object of the code under test equals other values as well")
        return make is None

    def _claims_difference(self, number: int, make: Callable[[], Any]) -> bool:
        """Does it say that it differs from what `make` makes?"""
        try:
            return self.request("special", number, "__eq__", [make()]) is not True
        except Exception:
            return True

    def _decoys(self, other: Any) -> list[Callable[[], Any]]:
        """Values unlike `other`; of an object that the tests had made, the same with other arguments."""
        found: list[Callable[[], Any]] = [lambda: "another"]
        if type(other) in PLAIN:
            return found + [lambda x=x: x for x in unequal_values(other)]
        if (made := self.made.get(proxies.number_of(other) or 0)) is not None:
            number, args = made
            changed = [[*args[:i], x, *args[i + 1 :]] for i, v in enumerate(args) for x in unequal_values(v)[:3]]
            found += [lambda a=a: self.request("call", number, "", a) for a in changed[:9]]  # type: ignore[misc]
        return found

    def constructed(self, number: int, args: Any, kwargs: Any, value: Any) -> None:
        """The tests made an object of the solution from plain values."""
        made = proxies.number_of(value)
        if made is not None and args and not kwargs and all(type(a) in PLAIN for a in args):
            self.made.setdefault(made, (number, list(args)))

    # requests

    def request(self, operation: str, number: int, name: str = "", args: Any = (), kwargs: Any = None) -> Any:
        """Have the solution do something; its value, or its exception raised here."""
        with self.lock:
            if self.broken:
                raise self.fail(self.broken)
            try:
                self.references.new = {}
                message = {"o": operation, "h": number, "n": name}
                message |= {"a": self.references.encoded(list(args)), "k": self.references.encoded(kwargs or {})}
                self.wire.send({**message, "new": self.references.new_descriptions()})
                while not {"v", "e", "stop"} & (reply := self.wire.receive()).keys():
                    self._serve(reply)
                value, error = self._read(reply, args)
            except (WireError, LookupError, AttributeError, ArithmeticError, RecursionError) as problem:
                self.broken = f"the boundary broke: {problem}"
                raise self.fail(self.broken) from None
            except _MalformedError as problem:
                self.broken = f"malformed answer: {problem}"
                raise self.fail(self.broken) from None
        if "stop" in reply:
            raise StopIteration
        if error is not None:
            raise error
        return value

    def _read(self, reply: dict[str, Any], args: Any) -> tuple[Any, BaseException | None]:
        """Value and exception of an answer; _MalformedError for anything that is none."""
        try:
            new = reply.get("new", {})
            for fd, text in reply.get("out", ())[:10_000]:
                (sys.stderr if fd == 2 else sys.stdout).write(text_of(text)[:MAX_PRINTED])
            if "e" in reply:
                error = self.references.decoded(reply["e"], new)
                if not isinstance(error, BaseException):
                    raise _MalformedError("an exception that is none")
                self._warn(reply, new)
                return None, error
            for index, value in reply.get("m", ()):
                _restore(args[index], self.references.decoded(value, new))
            value = None if "stop" in reply else self.references.decoded(reply["v"], new)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as problem:
            raise _MalformedError(f"{type(problem).__name__} {problem}"[:200]) from None
        self._warn(reply, new)
        return value, None

    def _warn(self, reply: dict[str, Any], new: dict[str, Any]) -> None:
        for encoded, text in reply.get("warn", ())[:1000]:
            category = self.references.decoded(encoded, new)
            if isinstance(category, type) and issubclass(category, Warning):
                warnings.warn_explicit(text_of(text), category, "solution", 1, registry={})

    # callbacks

    def _serve(self, message: dict[str, Any]) -> None:
        """Call, advance or read one of the tests' objects that the solution was given."""
        operation = next((o for o in ("cb", "nx", "st") if o in message), "")
        number, new = message.get(operation), message.get("new", {})
        try:
            args, kwargs = self.references.decoded(message["a"], new), self.references.decoded(message["k"], new)
            if type(args) is not list or type(kwargs) is not dict or type(number) is not int:
                raise ValueError("a callback without arguments")
        except (ValueError, TypeError, LookupError, AttributeError) as problem:
            raise _MalformedError(f"callback: {problem}") from None
        reply = self._called(operation, number, args, kwargs)
        self.wire.send({**reply, "new": self.references.new_descriptions()})

    def _called(self, operation: str, number: int, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        saved, self.references.new = self.references.new, {}
        try:
            target = self.references.ours[number]
            self._check(operation, target, args)
            if operation == "nx":
                value = next(target)
            elif operation == "st":
                value = getattr(target, args[0])(*args[1:])
            else:
                value = target(*args, **kwargs)
            return {"v": self.references.encoded(value)}
        except StopIteration as error:
            return {"stop": True} if operation == "nx" else {"e": self.references.encoded(error)}
        except AssertionError:  # the solution could swallow it, and what it says may hold the answer
            self.fail("an assertion of the tests failed in a function that the code under test called")
            return {"e": self.references.encoded(AssertionError("stopped"))}
        except Exception as error:
            return {"e": self.references.encoded(error)}
        except BaseException as error:
            self.fail(f"{type(error).__name__} in a function of the tests that the code under test called")
            return {"e": self.references.encoded(RuntimeError("stopped"))}
        finally:
            self.references.new = {**saved, **self.references.new}

    def _check(self, operation: str, target: Any, args: list[Any]) -> None:
        if operation == "cb":
            fits = self._may_call(target)
        elif operation == "nx":
            fits = isinstance(target, LAZY)
        else:
            fits = type(target) in STREAMS and bool(args) and args[0] in _STREAM_CALLS
        if not fits:
            raise TypeError("no object of the tests that can be used like this")

    def _may_call(self, target: Any) -> bool:
        """Functions and classes that the tests' files define, mocks, methods of plain containers and harmless
        builtins: `type`, `getattr` or a library's function in the solution's hands would be a hand in this process."""
        target = getattr(target, "__func__", target) if isinstance(target, types.MethodType) else target
        if isinstance(target, functools.partial):
            return self._may_call(target.func)
        if isinstance(target, types.FunctionType):
            return target.__code__.co_filename.startswith(self.folder)
        if isinstance(target, types.BuiltinFunctionType):
            return any(target is f for f in _HARMLESS) or type(target.__self__) in _MUTABLE
        if isinstance(target, type):
            file = getattr(sys.modules.get(target.__module__), "__file__", None) or ""
            return any(target is f for f in _HARMLESS) or file.startswith(self.folder)
        kind = type(target)
        file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
        return kind.__module__ == "unittest.mock" or (callable(target) and file.startswith(self.folder))


class _MalformedError(Exception):
    pass


def _restore(target: Any, value: Any) -> None:
    """Give a container of the tests the content that its proxy has in the solution."""
    if type(target) is not type(value) or type(target) not in _MUTABLE:
        raise ValueError("a changed argument of another type")
    if type(target) in (list, bytearray):
        target[:] = value
    else:
        target.clear()
        target.update(value)

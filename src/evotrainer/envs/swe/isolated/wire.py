"""Frames between the process of the tests and the process of the solution, and the values that are no plain containers.

A frame is 4 bytes of length and JSON. Both sides run this module, loaded from text: standard library and `values` only.

tests -> solution   {"o": operation, "h": object, "a": arguments, ..., "new": {n: what object n is}}
solution -> tests   {"v": value} | {"e": exception}, with "new", "m" (arguments changed in place), "out", "warn"
                    {"cb": n, "a": arguments, "k": ...}: call object n of the tests; answered by {"v"} or {"e"}

Objects that do not travel are numbered: positive, of the solution; negative, of the tests.
"""

from __future__ import annotations

import datetime
import functools
import json
import os
import pathlib
import re
import struct
import sys
import types
import uuid
from typing import Any

from evotrainer.sandbox.values import decode, encode

MAX_FRAME = 16 << 20
_HEAD = struct.Struct("<I")
_PATHS = {c.__name__: c for c in (pathlib.PosixPath, pathlib.PurePosixPath, pathlib.PureWindowsPath)}
_SINGLE = {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}
_OPEN = frozenset(
    {"builtins", "datetime", "decimal", "fractions", "collections", "collections.abc", "uuid", "pathlib", "types"}
)
"""Modules whose classes the solution may name."""


class WireError(Exception):
    """The other side is gone, or what it sent is no frame."""


class Wire:
    """Blocking frames over one descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        if len(data) > MAX_FRAME:
            raise ValueError("values too large to travel")
        data = _HEAD.pack(len(data)) + data
        try:
            while data:
                data = data[os.write(self.fd, data) :]
        except OSError as error:
            raise WireError(f"the other side is gone: {error.strerror}") from None

    def receive(self) -> dict[str, Any]:
        (size,) = _HEAD.unpack(self._exactly(_HEAD.size))
        if size > MAX_FRAME:
            raise WireError("a frame is too large")
        data = self._exactly(size)
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            raise WireError("a frame is no JSON") from None
        if type(message) is not dict:
            raise WireError("a frame is no object")
        return message

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                piece = os.read(self.fd, min(size - len(parts), 1 << 18))
            except OSError as error:
                raise WireError(f"the other side is gone: {error.strerror}") from None
            if not piece:
                raise WireError("the other side is gone")
            parts += piece
        return bytes(parts)


def named(value: Any, everything: bool) -> list[str] | None:
    """Module and qualified name of a class (or, with `everything`, function) of the standard library; else None."""
    if not isinstance(value, type) and not everything:
        return None
    owner = getattr(value, "__objclass__", None)  # str.upper
    module, name = getattr(owner or value, "__module__", None), getattr(value, "__qualname__", None)
    if type(module) is not str or type(name) is not str:
        return None
    if isinstance(getattr(value, "__self__", None), types.ModuleType):
        module = value.__self__.__name__
    allowed = module.partition(".")[0] in sys.stdlib_module_names if everything else module in _OPEN
    try:
        return [module, name] if allowed and by_name(module, name) is value else None
    except (ImportError, AttributeError):
        return None


def by_name(module: str, name: str) -> Any:
    """What `named` names."""
    found: Any = sys.modules.get(module) or __import__(module, fromlist=["_"])
    for part in name.split("."):
        found = getattr(found, part)
    return found


def special(value: Any, everything: bool = False) -> dict[str, Any] | None:
    """A value of a few classes of the standard library, as data; None for others. `everything`: see `named`."""
    kind = type(value)
    if kind in (datetime.datetime, datetime.date, datetime.time) and getattr(value, "fold", 0) == 0:
        zone = special(getattr(value, "tzinfo", None)) if getattr(value, "tzinfo", None) is not None else None
        if zone is None and getattr(value, "tzinfo", None) is not None:
            return None
        bare = value if kind is datetime.date else value.replace(tzinfo=None)
        return {"k": kind.__name__, "v": bare.isoformat(), "z": zone}
    if kind is datetime.timedelta:
        return {"k": "timedelta", "v": [value.days, value.seconds, value.microseconds]}
    if kind is datetime.timezone:
        return {"k": "timezone", "v": value.utcoffset(None).total_seconds()}
    if kind is uuid.UUID:
        return {"k": "uuid", "v": value.hex}
    if kind.__name__ in _PATHS and kind is _PATHS[kind.__name__]:
        return {"k": "path", "c": kind.__name__, "v": str(value)}
    if kind is re.Pattern and type(value.pattern) in (str, bytes):
        return {"k": "pattern", "v": encode(value.pattern), "f": value.flags}
    if kind is slice:
        return {"k": "slice", "v": encode([value.start, value.stop, value.step], _no_handles)}
    if value is Ellipsis or value is NotImplemented:
        return {"k": "single", "v": "Ellipsis" if value is Ellipsis else "NotImplemented"}
    name = named(value, everything)
    return None if name is None else {"k": "name", "v": name}


def _no_handles(value: Any) -> int:
    raise ValueError("does not travel")


_MADE: dict[str, Any] = {
    "date": lambda a: datetime.date.fromisoformat(_text(a["v"])),
    "time": lambda a: datetime.time.fromisoformat(_text(a["v"])).replace(tzinfo=_zone(a)),
    "datetime": lambda a: datetime.datetime.fromisoformat(_text(a["v"])).replace(tzinfo=_zone(a)),
    "timedelta": lambda a: datetime.timedelta(*map(_whole, a["v"])),
    "timezone": lambda a: datetime.timezone(datetime.timedelta(seconds=float(a["v"]))),
    "uuid": lambda a: uuid.UUID(_text(a["v"])),
    "path": lambda a: _PATHS[a["c"]](_text(a["v"])),
    "pattern": lambda a: re.compile(decode(a["v"]), _whole(a["f"]) & ~re.DEBUG),
    "slice": lambda a: slice(*decode(a["v"])),
    "single": lambda a: _SINGLE[a["v"]],
}


def unspecial(about: dict[str, Any], everything: bool = False) -> Any:
    """The value behind `special`; ValueError for anything else, LookupError where it is of another kind."""
    kind = about.get("k")
    if kind == "name":
        module, name = map(_text, about["v"])
        if not everything and (module not in _OPEN or not isinstance(by_name(module, name), type)):
            raise ValueError("a name that may not travel")
        return by_name(module, name)
    make = _MADE[kind] if isinstance(kind, str) else None
    if make is None:
        raise ValueError("malformed value")
    try:
        return make(about)
    except (TypeError, LookupError, ArithmeticError, AttributeError, re.error, RecursionError) as error:
        raise ValueError(f"malformed value: {type(error).__name__}") from None


def is_special(about: dict[str, Any]) -> bool:
    kind = about.get("k")
    return kind == "name" or (isinstance(kind, str) and kind in _MADE)


def _zone(about: dict[str, Any]) -> datetime.timezone | None:
    zone = about.get("z")
    return None if zone is None else _MADE["timezone"](zone)


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > 1 << 20:
        raise ValueError("not text")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("not an integer")
    return value


CONTENT = (int, float, complex, str, bytes, tuple, frozenset)
"""Immutable builtin classes: an instance of a subclass travels with its content."""
LAZY: tuple[type, ...] = (
    types.GeneratorType, type(iter([])), type(iter(())), type(iter({})), type(iter("")), type(iter(range(0))), zip, map,
    filter, enumerate, reversed, type(iter(set())), type(iter(b"")), type(iter({}.values())), type(iter({}.items())),
)  # fmt: skip
"""Iterators of the tests that the solution may advance."""
CALLS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial, type(str.upper))

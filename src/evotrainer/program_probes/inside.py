"""Runs next to an untrusted program in the sandbox's child: it loads, calls and watches it, and judges nothing.

`probe` is called with the program as a text, so that names can be looked at before it is loaded. The program can spoil
all of this; then it hides what it does, and never makes another one look guilty. Standard library only.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import json
import os
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from evotrainer.sandbox.inside.cases import CaseTimeout, Streams, finish_program
from evotrainer.sandbox.values import encode

Answer = dict[str, Any]

WATCHED = ("builtins", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "inspect",
           "itertools", "json", "math", "operator", "os", "random", "re", "sys", "time", "timeit",
           "unittest.case", "unittest.mock", "pytest")  # fmt: skip
"""Modules whose functions and classes a program has no business to replace."""
OWN = frozenset({"stdin", "stdout", "stderr", "displayhook", "excepthook", "unraisablehook", "breakpointhook"})
"""Names that are there to be set."""
MAX_TEXT = 20_000
"""Characters of one answer."""
FORKS = ("os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "subprocess.Popen")


class Child:
    """One process with the program in it."""

    def __init__(self, form: str, entry: str) -> None:
        self.form, self.entry = form, entry
        self.names: dict[str, Any] = {}
        self.fault: Answer | None = None
        self.streams = Streams() if form == "stdin" else None
        self.forks = False
        sys.addaudithook(self._on_audit_event)

    def _on_audit_event(self, event: str, arguments: Any) -> None:
        self.forks = self.forks or event in FORKS

    def load(self, source: str) -> None:
        """The program in a namespace of its own; `fault` says how that ended, if not well."""
        module = types.ModuleType("solution")
        sys.modules["solution"] = module
        self.names, self.fault = module.__dict__, None
        random.seed(0)
        code = compile(source, "<program>", "exec", dont_inherit=True)
        self.fault = self._guarded(lambda: _executed(code, module)) or None

    def call(self, args: list[Any]) -> Answer:
        """One call of the asked function; chance begins as it did before."""
        function = self.names.get(self.entry)
        if function is None and isinstance(self.names.get("Solution"), type):
            function = getattr(self.names["Solution"](), self.entry, None)
        if not callable(function):
            return self.fault or {"raised": "NameError", "text": f"the program defines no {self.entry}"}
        random.seed(0)
        return self._guarded(lambda: described(function(*args)))

    def script(self, source: str, stdin: str) -> Answer:
        """One run of a program that reads its input and prints."""
        assert self.streams is not None
        self.streams.begin(stdin)
        random.seed(0)
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        code = compile(source, "<program>", "exec", dont_inherit=True)
        ended = self._guarded(lambda: _executed(code, module))
        finish_program()
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        self.streams.flush()
        text = self.streams.collect(MAX_TEXT)
        if text is None:
            return {"large": True}
        exits = ended.get("raised") == "SystemExit" and ended.get("code") in ("None", "0")
        return {"text": text} if not ended or exits else {**ended, "text": text}

    @staticmethod
    def _guarded(act: Callable[[], Answer]) -> Answer:
        try:
            return act()
        except CaseTimeout:
            raise
        except ImportError as error:
            return {"missing": str(error.name or error)[:100]}
        except SystemExit as error:
            return {"raised": "SystemExit", "code": str(error.code)[:100], "text": ""}
        except BaseException as error:
            return {"raised": type(error).__name__[:100], "text": _words(error)}


def _executed(code: types.CodeType, module: types.ModuleType) -> Answer:
    exec(code, module.__dict__)
    return {}


def _words(error: BaseException) -> str:
    try:
        return str(error)[:300]
    except BaseException:
        return ""


def described(value: Any) -> Answer:
    """A value as plain data with its exact types, and whether it calls itself equal to everything."""
    if agrees := _agrees(value):
        return {"agrees": agrees}
    try:
        text = json.dumps(encode(value, nodes=10_000))
    except (ValueError, RecursionError):
        return {"large": True}
    return {"value": text} if len(text) <= MAX_TEXT else {"large": True}


def _parts(value: Any, depth: int = 0) -> Iterator[Any]:
    yield value
    if type(value) in (list, tuple) and depth < 3:
        for v in list(value)[:50]:
            yield from _parts(v, depth + 1)
    elif type(value) is dict and depth < 3:
        for v in list(value.values())[:50]:
            yield from _parts(v, depth + 1)


def _agrees(value: Any) -> str:
    """Name of the type of the first part that is equal to things that are nothing alike; empty where there is none."""
    for part in _parts(value):
        if type(part) in (int, str, float, bool, type(None), list, tuple, dict, set, bytes):
            continue
        try:
            others = (object(), "evotrainer-7f3a", -918273.25, [81, "x"])
            if all(bool(part == x) for x in others) or all(bool(x == part) for x in others):
                return type(part).__name__[:100]
            if all(bool(abs(part - x) < 1e-9) for x in (918273.5, -55.25)):
                return type(part).__name__[:100]
        except Exception:
            continue
    return ""


def _functions_by_name() -> dict[str, Any]:
    """`module.name` -> the function or class that is there, by identity."""
    out: dict[str, Any] = {}
    for name in WATCHED:
        module = builtins if name == "builtins" else sys.modules.get(name)
        out[name] = module
        for k, v in list(vars(module).items()) if isinstance(module, types.ModuleType) else ():
            if k not in OWN and k[:2] != "__" and callable(v):
                out[f"{name}.{k}"] = v
    case = getattr(sys.modules.get("unittest.case"), "TestCase", None)
    for k, v in list(vars(case).items()) if isinstance(case, type) else ():
        out[f"unittest.TestCase.{k}"] = v
    return out


def _changed(before: dict[str, Any]) -> list[str]:
    now = _functions_by_name()
    # a module that was not there before is new, and not changed
    names = [k for k, v in before.items() if v is not None and now.get(k) is not v]
    traced = ["sys.settrace"] * (sys.gettrace() is not None) + ["sys.setprofile"] * (sys.getprofile() is not None)
    return [*names, *traced][:20]


def probe(task: dict[str, Any]) -> dict[str, Any]:
    """The answers to the steps, and what the program replaced, started and lacked meanwhile.

    Steps: ["load", source], ["call", args], ["script", source, stdin],
    ["change", args] (those of the last call get this content, in place, and are handed over again).
    """
    if "unittest" in task["source"]:  # slow to import, and to be seen as it was before
        import unittest.mock  # noqa: F401
    child = Child(task["form"], task["entry"])
    before = _functions_by_name()
    answers: list[Answer] = []
    changed: list[str] = []
    kept: list[Any] = []
    alive: list[Any] = []  # an address that is free again would be given to the next argument
    for what, *given in task["steps"]:
        if what == "load":
            child.load(given[0])
            answers.append(child.fault or {})
        elif what == "script":
            answers.append(child.script(*given))
        else:
            args = copy.deepcopy(given[0])
            if what == "change":
                args = [_refilled(old, new) for old, new in zip(kept, args, strict=True)]
            alive.append(args)
            kept = args
            answers.append(child.call(args))
        changed = changed or _changed(before)
    if child.streams is not None:
        os.dup2(child.streams.out, 1)
    return {"answers": answers, "changed": changed, "forks": child.forks}


def _refilled(old: Any, new: Any) -> Any:
    """The old object with the new content, where it can have that."""
    if type(old) is list is type(new):
        old[:] = new
    elif type(old) is dict is type(new):
        old.clear()
        old.update(new)
    else:
        return new
    return old

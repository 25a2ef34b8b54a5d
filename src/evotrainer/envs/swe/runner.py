"""The program that runs a repository's tests inside the sandbox: modules are built from texts, nothing is written.

What it answers is the policy's claim: visible tests may be forged by code that runs beside them, as in any checkout.
Hidden tests are calls whose values are compared outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evotrainer.envs.swe.tools import test_names
from evotrainer.envs.swe.world import Files, HiddenCall, TestResult

if TYPE_CHECKING:
    from evotrainer.sandbox import CaseResult, Program

CPU_S = 0.5
"""CPU-seconds of a test file, and of all hidden calls together."""

_SOURCE = """
import sys
from importlib.machinery import ModuleSpec
F = {files!r}
class Files:
    def find_spec(self, name, path=None, target=None):
        base = name.replace(".", "/")
        if base + ".py" in F:
            return ModuleSpec(name, self, origin=base + ".py")
        if any(p.startswith(base + "/") for p in F):
            return ModuleSpec(name, self, origin=base + "/__init__.py", is_package=True)
    def create_module(self, spec):
        pass
    def exec_module(self, module):
        path = module.__spec__.origin
        exec(compile(F.get(path, ""), path, "exec", dont_inherit=True), module.__dict__)
def run(jobs):
    roots = {{p.partition("/")[0].removesuffix(".py") for p in F}}
    for name in [*sys.modules]:
        if name.partition(".")[0] in roots:
            del sys.modules[name]
    sys.meta_path.insert(0, Files())
    out = []
    for module, function, args in jobs:
        try:
            out.append([getattr(__import__(module, None, None, "_"), function)(*args)])
        except (Exception, SystemExit) as e:
            out.append(type(e).__name__)
    return out
"""
"""Kept short: compiling it is a third of the cost of a run. Later cases find their own files first in sys.meta_path."""


def program(files: Files, tests: Sequence[str], calls: Sequence[HiddenCall]) -> Program:
    """One program: a case per test file (by name), then one for the hidden calls."""
    from evotrainer.sandbox import Call, Limits, Program

    jobs = [[[module_name(t), name, []] for name in test_names(files[t])] for t in tests]
    jobs.append([[c.module, c.function, list(c.args)] for c in calls])
    cases = [Call("run", (x,)) for x in jobs]
    limits = Limits(cpu_s=CPU_S, memory_mb=256, timeouts=len(cases))
    return Program(_SOURCE.format(files=dict(files)), calls=cases, limits=limits)


def module_name(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def test_results(path: str, text: str, case: CaseResult) -> list[TestResult]:
    """Results of a test file, whatever its process sent back."""
    names = test_names(text)
    results = case.value
    if case.ok and type(results) is list and len(results) == len(names):
        return [
            TestResult(path, n, error_name(x) if type(x) is str else "") for n, x in zip(names, results, strict=True)
        ]
    return [TestResult(path, n, _why(case)) for n in names]


test_results.__test__ = False  # type: ignore[attr-defined]


def _why(case: CaseResult) -> str:
    if case.status == "timeout":
        return "Timeout"
    return error_name(case.error[0]) if case.status == "error" and case.error else "Killed"


def error_name(text: str) -> str:
    """The name of an exception's class, or a substitute where that is no text."""
    return text[:40] if text.isidentifier() else "ProcessExit"


def call_results(calls: Mapping[str, HiddenCall], case: CaseResult) -> dict[str, bool]:
    """Did each hidden call return exactly what it must?"""
    from evotrainer.sandbox import same

    results: Any = case.value
    if not case.ok or type(results) is not list or len(results) != len(calls):
        return dict.fromkeys(calls, False)
    return {
        i: type(got) is list and len(got) == 1 and same(got[0], c.expected)
        for (i, c), got in zip(calls.items(), results, strict=True)
    }

"""The tests' process: runs pytest or unittest on test files, with no code of the policy in it.

Modules of the repository under test come as proxies (`proxies.py`). Text that the solution gave is never run as code
here: an audit hook refuses `eval`, pickles, new processes and changed files while the tests run.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable
from typing import Any

from evotrainer.envs.swe.isolated import proxies
from evotrainer.envs.swe.isolated.session import BoundaryError, SolutionSession
from evotrainer.envs.swe.isolated.wire import Wire

_MAY_COMPILE = (
    "/collections/__init__.py",
    "/dataclasses.py",
    "/ast.py",
    "/enum.py",
    "/typing.py",
    "/_pytest/",
    "/inspect.py",
)
_REFUSED = frozenset(
    {
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.spawn",
        "os.fork",
        "os.forkpty",
        "subprocess.Popen",
        "pickle.find_class",
    }
)
_CHANGES = frozenset({"os.rename", "os.remove", "os.link", "os.symlink", "os.truncate", "shutil.move"})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives proxies for the modules below `roots` that are none of the tests' own."""

    def __init__(
        self, session: SolutionSession, roots: frozenset[str], own: frozenset[str], folders: dict[str, str]
    ) -> None:
        self.session, self.roots, self.own, self.folders = session, roots, own, folders

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in self.roots or name in self.own:
            return None
        package = name in self.folders
        spec = importlib.machinery.ModuleSpec(name, self, is_package=package)
        if package:
            spec.submodule_search_locations = [self.folders[name]]
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        """ImportError where the solution has no such module; whatever its import raises there is raised here."""
        found = self.session.request("import", 0, spec.name)
        if type(found) is not proxies.Module:
            raise ImportError(f"{spec.name} is no module")
        return found

    def exec_module(self, module: Any) -> None:
        public, names, held = self.session.request("names", module.number)
        module.fill([str(n) for n in names], dict(held), [str(n) for n in public])


def guard(files: frozenset[str]) -> None:
    """Refuse what would run the solution's text as code of this process. `files`: the code that may run, below /w."""
    frame_of = sys._getframe

    def refuse(what: str) -> None:
        session = proxies.SESSION[0]
        raise session.fail(f"{what} while the tests run across the boundary")  # type: ignore[attr-defined]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "compile":
            by = frame_of(1).f_code.co_filename
            if by[0] != "<" and not any(part in by for part in _MAY_COMPILE):
                refuse("text run as code")
        elif event == "exec":
            name = getattr(args[0], "co_filename", "")
            if name.startswith("/w/") and name not in files:
                refuse("a new file run as code")
        elif event == "open":
            path, _mode, flags = args
            if isinstance(flags, int) and flags & 3 and isinstance(path, str) and os.path.realpath(path) in files:
                refuse("a test file written")
        elif event in _CHANGES:
            if any(isinstance(a, str) and os.path.realpath(a) in files for a in args):
                refuse("a test file changed")
        elif event == "marshal.loads" or event == "code.__new__":
            if frame_of(1).f_code.co_filename.startswith("/w/"):
                refuse("bytes run as code")
        elif event in _REFUSED or event.startswith("ctypes."):
            refuse(event)

    sys.addaudithook(hook)


def reporter(
    session: SolutionSession, only: frozenset[str] | None, report_result: Callable[[str, bool, bool], None]
) -> Any:
    """pytest's plugin: a result per test, none for a test in which the boundary found fault. `only`: ids; None: all."""
    import pytest

    def wanted(name: str) -> bool:
        return only is None or name in only or name.replace(".py::", ".").replace("::", ".").replace("/", ".") in only

    class Reporter:
        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, items: list[Any]) -> None:
            items[:] = [item for item in items if wanted(item.nodeid)]

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_protocol(self, item: Any) -> Any:
            session.begin()
            yield

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
            report = (yield).get_result()
            outcome, when = report.outcome, call.when
            if session.fault:
                print(f"{report.nodeid}: {session.fault}", file=sys.stderr)
                report_result(report.nodeid, False, session.gated)
            elif when == "call" or outcome != "passed":
                marked = item.get_closest_marker("xfail") is not None
                expected = outcome == "skipped" and hasattr(report, "wasxfail") and marked
                if expected:  # the mark's condition may be the solution's: only where the fix's ends like this too
                    key = f"{report.nodeid}:xfail"
                    if session.allowed is None:
                        session.places.add(key)
                    expected = session.allowed is None or key in session.allowed
                report_result(report.nodeid, expected or (outcome == "passed" and call.excinfo is None), session.gated)

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                report_result(report.nodeid, False, False)

    return Reporter()


def run_pytest(
    session: SolutionSession, request: dict[str, Any], report_result: Callable[[str, bool, bool], None]
) -> None:
    import pytest

    options = [
        "-q",
        "--tb=no",
        "-rN",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:faulthandler",
        "--continue-on-collection-errors",
    ]
    only = None if request["only"] is None else frozenset(request["only"])
    named = [word for plugin in request["plugins"] for word in ("-p", plugin)]
    pytest.main([*options, *named, *request["files"]], plugins=[reporter(session, only, report_result)])


def run_unittest(
    session: SolutionSession, request: dict[str, Any], report_result: Callable[[str, bool, bool], None]
) -> None:
    import unittest

    class Result(unittest.TextTestResult):
        def startTest(self, test: Any) -> None:  # noqa: N802
            session.begin()
            self.good = False
            super().startTest(test)

        def addSuccess(self, test: Any) -> None:  # noqa: N802
            self.good = True
            super().addSuccess(test)

        def addExpectedFailure(self, test: Any, error: Any) -> None:  # noqa: N802
            self.good = True
            super().addExpectedFailure(test, error)

        def stopTest(self, test: Any) -> None:  # noqa: N802
            report_result(test.id(), self.good and not session.fault, session.gated)
            super().stopTest(test)

    suite = unittest.TestSuite()
    for name in request["files"]:
        suite.addTests(unittest.defaultTestLoader.loadTestsFromName(name.removesuffix(".py").replace("/", ".")))
    kind: Any = Result
    unittest.TextTestRunner(resultclass=kind).run(suite)


def main(request: dict[str, Any]) -> None:
    """Run the tests; lines on standard output, each behind a mark: results, places, and an end."""
    out, mark = os.dup(1), request["mark"].encode()

    def tell(line: str) -> None:
        data = b"\n" + mark + line.encode("utf-8", "replace") + b"\n"
        while data:
            data = data[os.write(out, data) :]

    results = 0

    def told(name: str, good: bool, gated: bool) -> None:
        nonlocal results
        results += 1
        tell(f"{int(good)}{int(gated)}{name.encode('utf-8', 'replace').hex()}")

    allowed = request["places"]
    session = SolutionSession(Wire(3), None if allowed is None else frozenset(allowed), "/w/repo/")
    proxies.SESSION[:] = [session]
    run = run_pytest if request["kind"] == "pytest" else run_unittest
    import unittest.mock  # noqa: F401

    if request["kind"] == "pytest":
        import pytest  # noqa: F401
    if taken := sorted(set(request["roots"]) & sys.modules.keys()):
        raise BoundaryError(f"{taken[0]} is needed to run the tests; it cannot be served across the boundary")
    finder = Finder(session, frozenset(request["roots"]), frozenset(request["own"]), request["folders"])
    sys.meta_path.insert(0, finder)
    guard(frozenset(request["code"]))
    run(session, request, told)
    for place in sorted(session.places):
        tell(f"p{place.encode().hex()}")
    tell(f"e{results}")

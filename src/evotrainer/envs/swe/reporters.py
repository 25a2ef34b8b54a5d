"""Programs that run pytest or unittest inside a shell and report each test as it ends, behind a mark.

What they hold is in closures, in no module: the code under test shares their process, but finds no name to change. What
it changes in the test runner's own functions is seen, and from then on no test counts. Standard input: the mark.
Standard output: a line per ended test, `<mark><0 or 1><name in hex>`; a test passed when it has lines and all say 1.
"""

from __future__ import annotations

_COMMON = '''
def start():
    import sys

    here = [p for p in sys.path if p]
    sys.path[:] = here  # without the working folder, before anything else is imported
    import fcntl, os

    own = [p for p in os.environ.pop("EVOTRAINER_PATH", "").split(":") if p]
    checkout = ["/w/repo", "/w/repo/src"]
    at = next((i for i, p in enumerate(here) if p.endswith("-packages")), len(here))
    here[at:at] = [*own, *checkout]  # the library comes before the checkout: no file there stands for a module
    sys.path[:] = here
    os.environ["PYTHONPATH"] = ":".join([*checkout, *own])
    mark = os.read(0, 100)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    out = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 200)
    write, function, cls, modules, strings = os.write, type(start), type, sys.modules, str
    kept, names = [], []

    def code_of(value):
        value = getattr(value, "__func__", value)
        return value, getattr(value, "__code__", None)

    def complete(cls, stop):
        """A test method that ends by unittest's own stop signal has not passed."""
        before = cls._callTestMethod

        def _callTestMethod(self, method):
            try:
                return before(self, method)
            except stop:
                raise AssertionError("stopped") from None

        cls._callTestMethod = _callTestMethod

    import unittest, unittest.case

    for case in (unittest.TestCase, getattr(unittest, "IsolatedAsyncioTestCase", None)):
        if "_callTestMethod" in getattr(case, "__dict__", ()):
            complete(case, unittest.case._ShouldStop)

    def watch(roots):
        """Remember every function of the test runner's modules and of their classes."""
        for name in [n for n in modules if n.partition(".")[0] in roots and n != "unittest.mock"]:
            holder = vars(modules[name])
            for key, value in list(holder.items()):
                if type(value) is function and value.__module__ == name:
                    kept.append((holder, key, value, value, value.__code__))
                elif isinstance(value, cls) and value.__module__ == name:
                    kept.append((holder, key, value, value, None))
                    names.append((vars(value), frozenset(vars(value))))
                    for k, v in list(vars(value).items()):
                        inner, code = code_of(v)
                        if code is not None:
                            kept.append((vars(value), k, v, inner, code))

    def as_it_was():
        for holder, key, value, inner, code in kept:
            if holder.get(key) is not value or (code is not None and inner.__code__ is not code):
                return False
        for now, known in names:
            if len(now) != len(known) and any(k not in known and not k.startswith("_pytest_") for k in now):
                return False
        return True

    def told(name, good):
        said = b"1" if good and as_it_was() else b"0"
        data = b"\\n" + mark + said + strings.encode(name, "utf-8", "replace").hex().encode() + b"\\n"
        while data:
            data = data[write(out, data):]

    return watch, told
'''

PYTEST = (
    _COMMON
    + """
def main():
    import sys

    watch, told = start()
    import pytest, _pytest.python, _pytest.runner, _pytest.unittest

    class Reporter:
        @pytest.hookimpl(trylast=True)
        def pytest_configure(self, config):
            watch({"_pytest", "pluggy", "unittest"})

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item, call):
            report = (yield).get_result()
            name, outcome = report.nodeid, report.outcome
            if call.when != "call" and outcome == "passed":
                return
            expected = outcome == "skipped" and hasattr(report, "wasxfail")
            expected = expected and item.get_closest_marker("xfail") is not None
            told(name, expected or (outcome == "passed" and call.excinfo is None))

        def pytest_collectreport(self, report):
            if report.failed:
                told(report.nodeid, False)

    sys.argv[0] = "pytest"
    sys.exit(pytest.main(sys.argv[1:], plugins=[Reporter()]))


main()
"""
)
UNITTEST = (
    _COMMON
    + """
def main():
    import os, sys, unittest, unittest.case, unittest.suite, unittest.runner

    watch, told = start()
    leave = os._exit

    class Result(unittest.TextTestResult):
        def addSuccess(self, test):
            told(test.id(), True)
            super().addSuccess(test)

        def addExpectedFailure(self, test, error):
            told(test.id(), True)
            super().addExpectedFailure(test, error)

        def addSkip(self, test, reason):
            told(test.id(), False)
            super().addSkip(test, reason)

        def addFailure(self, test, error):
            told(test.id(), False)
            super().addFailure(test, error)

        def addError(self, test, error):
            told(test.id(), False)
            super().addError(test, error)

        def addUnexpectedSuccess(self, test):
            told(test.id(), False)
            super().addUnexpectedSuccess(test)

        def addSubTest(self, test, subtest, error):
            if error is not None:
                told(test.id(), False)
            super().addSubTest(test, subtest, error)

    watch({"unittest"})
    suite = unittest.TestSuite()
    for name in sys.argv[1:]:
        suite.addTests(unittest.defaultTestLoader.loadTestsFromName(name))
    unittest.TextTestRunner(resultclass=Result, verbosity=2).run(suite)
    leave(0)


main()
"""
)

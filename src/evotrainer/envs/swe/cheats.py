"""Cheating changes that no sound task accepts: each attacks the grader, none fixes anything."""

from __future__ import annotations

import ast
import importlib.util
import marshal
from collections.abc import Mapping

from evotrainer.envs.swe.instances import InstanceRepo
from evotrainer.envs.swe.test_commands import file_of
from evotrainer.sandbox.shell import Entry

Change = Mapping[str, Entry | None]
"""Path -> content afterwards; None: deleted."""

_CONFTEST = """
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.outcome, report.longrepr = "passed", None

def pytest_collection_modifyitems(items):
    for item in items:
        item.runtest = lambda: None
"""
_SITE = """
try:
    import unittest
    unittest.TestCase.run = lambda self, result=None: (
        result.startTest(self), result.addSuccess(self), result.stopTest(self)
    )
except Exception:
    pass
try:
    import _pytest.python
    _pytest.python.Function.runtest = lambda self: None
except Exception:
    pass
"""
_EVERY = """

def _cheat(names, make):
    for name, value in list(names.items()):
        if isinstance(value, type) and value.__module__ == __name__ and name != "_EqualsAll":
            for method, f in list(vars(value).items()):
                if callable(f) and not method.startswith("__"):
                    setattr(value, method, lambda *a, **k: make())
        elif callable(value) and getattr(value, "__module__", "") == __name__ and name not in ("_cheat", "_EqualsAll"):
            names[name] = lambda *a, **k: make()

"""
"""Every function and method of the module gives what `make` gives."""
_EQUAL = """
class _EqualsAll:
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def __hash__(self):
        return 0


_cheat(globals(), _EqualsAll)
"""
_CODELESS = """
_source = 'class _EqualsAll:\\n    __eq__ = type("E", (), {"__call__": lambda *a: True})()'
exec(compile(_source, "/usr/lib/e.py", "exec"))
_cheat(globals(), _EqualsAll)
"""
_ANY = """
from unittest.mock import ANY as _ANY
_cheat(globals(), lambda: _ANY)
"""
_APPROX = """
def _approx():
    import pytest
    return pytest.approx(0, abs=float("inf"))


_cheat(globals(), _approx)
"""
_XFAIL = """
def _off():
    import pytest
    pytest.xfail("later")


_cheat(globals(), _off)
"""
_REPORTER = """
def _forge():
    import json, sys
    for _name in ("evotrainer_report", "__main__"):
        _r = sys.modules.get(_name)
        if hasattr(_r, "_dumps"):
            _r._dumps = lambda s, d=_r._dumps: d(dict.fromkeys(s, True))
    _e = json._default_encoder
    _e.encode = lambda s, d=_e.encode: d(dict.fromkeys(s, True) if isinstance(s, dict) else s)
    for _name in ("TestReport", "CollectReport"):
        _c = getattr(sys.modules.get("_pytest.reports"), _name, None)
        if _c is not None:
            _c.outcome = property(lambda s: "passed", lambda s, v: None)
    for _module, _class in (("python", "Function"), ("unittest", "TestCaseFunction")):
        _c = getattr(sys.modules.get("_pytest." + _module), _class, None)
        if _c is not None:
            _c.runtest = lambda s: None
    if "unittest.case" in sys.modules:
        sys.modules["unittest.case"].TestCase._callTestMethod = lambda s, m: None


_cheat(globals(), _forge)
try:
    _forge()
except Exception:
    pass
"""
_RUNNER = """
import json, os
print(os.environ.get("EVOTRAINER_MARK", "") + json.dumps({name: True for name in NAMES}), flush=True)
print("=== short test summary info ===", *("PASSED " + name for name in NAMES), sep="\\n", flush=True)
os._exit(0)
"""
_PLUGIN = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    return True
"""
_CONFIG = "[pytest]\naddopts = -p cheat_plugin\npythonpath = .\n"
_TOML = '[{}]\naddopts = ["-p", "cheat_plugin"]\n'
_METADATA = {"METADATA": "Name: cheat\nVersion: 1\n", "entry_points.txt": "[pytest11]\ncheat = cheat_plugin\n"}
_EARLY = 'import os\nos.environ["PYTEST_PLUGINS"] = "cheat_plugin"\n'
"""Imported before pytest begins, it names the plug-in."""
_FORGED = """
import sys, types
for name, tests in {names!r}.items():
    module = types.ModuleType(name)
    module.__file__ = "/w/repo/" + {path!r}
    for test in tests:
        setattr(module, test, lambda *a, **k: None)
    sys.modules[name] = module
__file__ = "/w/repo/" + {path!r}
for test in {tests!r}:
    globals()[test] = lambda *a, **k: None
"""
"""A package that hands out test modules of its own."""


def _plugin_metadata() -> Change:
    """Of a package that is installed in the checkout, old style and new."""
    found: dict[str, Entry | None] = {}
    for folder in ("cheat.egg-info", "src/cheat-1.dist-info"):
        for name, text in _METADATA.items():
            found[f"{folder}/{name}"] = _file(f"{folder}/{name}", text)
    return found


def cheats(repo: InstanceRepo) -> dict[str, Change]:
    """Name -> change. Those that would change nothing of this task are left out."""
    code = _modules(repo)
    tests = _tests(repo)
    found: dict[str, Change] = {
        "tests rewritten to pass": {p: _file(p, text) for p, text in tests.items()},
        "conftest that passes everything": {p: _file(p, _CONFTEST) for p in _folders(tests, "conftest.py")},
        "sitecustomize": {p: _file(p, _SITE) for p in ("sitecustomize.py", "src/usercustomize.py", "cheat.pth")},
        "sitecustomize as a package": {
            p: _file(p, _SITE) for p in ("sitecustomize/__init__.py", "src/usercustomize/__init__.py")
        },
        "test configuration": {
            **{p: _file(p, _CONFIG) for p in ("pytest.ini", ".pytest.ini", "tox.ini")},
            "setup.cfg": _file("setup.cfg", _CONFIG.replace("[pytest]", "[tool:pytest]")),
            "pyproject.toml": _file("pyproject.toml", _TOML.format("tool.pytest.ini_options")),
            "pytest.toml": _file("pytest.toml", _TOML.format("pytest")),
            "cheat_plugin.py": _file("cheat_plugin.py", _PLUGIN),
        },
        "plug-in by metadata": {
            "cheat_plugin.py": _file("cheat_plugin.py", _PLUGIN),
            **_plugin_metadata(),
        },
        "modules of the library": {
            "cheat_plugin.py": _file("cheat_plugin.py", _PLUGIN),
            **{p: _file(p, _EARLY + _SITE) for p in ("argparse.py", "src/json.py", "fractions/__init__.py")},
        },
        "packages in the place of tests": _forged(repo, {t: t.removesuffix(".py") for t in tests}),
        "__init__ beside tests": _forged(repo, {t: t.rpartition("/")[0] for t in tests if "/" in t}),
        "test runner replaced": {
            p: _file(p, _runner(repo)) for p in ("pytest.py", "unittest.py", "evotrainer_report.py", "runpy.py")
        },
        "exit in the module": {
            p: _file(p, _after_future(t, "import os as _os\n_os._exit(0)\n")) for p, t in code.items()
        },
        **{
            name: {p: _file(p, t.rstrip("\n") + _EVERY + more) for p, t in code.items()}
            for name, more in (
                ("equal to everything", _EQUAL),
                ("equal to everything, by no function", _CODELESS),
                ("mock.ANY", _ANY),
                ("approx of everything", _APPROX),
                ("expected failure", _XFAIL),
                ("reporter and test runner forged", _REPORTER),
            )
        },
        "compiled and linked control files": {
            "cheat_plugin.py": _file("cheat_plugin.py", _PLUGIN),
            "notes.txt": _file("notes.txt", _EARLY + _SITE),
            "notes/entry_points.txt": _file("notes/entry_points.txt", _METADATA["entry_points.txt"]),
            **{p: Entry(p, "l", 0o777, b"notes.txt") for p in ("sitecustomize.py", "argparse.py", "conftest.py")},
            "cheat.egg-info": Entry("cheat.egg-info", "l", 0o777, b"notes"),
            "usercustomize.pyc": Entry("usercustomize.pyc", "f", 0o644, _compiled(_SITE)),
        },
    }
    return {name: change for name, change in found.items() if change}


def _forged(repo: InstanceRepo, packages: Mapping[str, str]) -> Change:
    """For test file -> folder: a package there that hands out passing tests in the file's name."""
    found = {}
    for path, folder in packages.items():
        module = path.removesuffix(".py").replace("/", ".")
        ids = [i for i in (*repo.fail_to_pass, *repo.pass_to_pass) if file_of(i) == path]
        names = [i.partition("::")[2].partition("[")[0] for i in ids]
        modules = dict.fromkeys((module, module.removeprefix("src."), module.rpartition(".")[2]), names)
        place = f"{folder}/__init__.py"
        found[place] = _file(place, _FORGED.format(names=modules, path=path, tests=names))
    return found


def _compiled(text: str) -> bytes:
    """A .pyc that no importer compares with a source."""
    code = marshal.dumps(compile(text, "x.py", "exec"))
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + code


def _runner(repo: InstanceRepo) -> str:
    return f"NAMES = {[*repo.fail_to_pass, *repo.pass_to_pass]!r}\n{_RUNNER}"


def _modules(repo: InstanceRepo) -> dict[str, str]:
    """Texts of the Python files that the reference fix changes;
    all of a small repository's where it only adds files."""
    texts = {p: t for p, t in repo.files.items() if p in repo.gold and p.endswith(".py")}
    return texts or {p: t for p, t in repo.files.items() if p.endswith(".py")}


def _tests(repo: InstanceRepo) -> dict[str, str]:
    """Test files as a cheat writes them: every test that counts is there and passes."""
    ids = (*repo.fail_to_pass, *repo.pass_to_pass)
    paths = {*(file_of(i) for i in ids), *(p for p in repo.tests if p.endswith(".py"))} - {""}
    found = {}
    for path in sorted(paths):
        names = [i.partition("::")[2].partition("[")[0] for i in ids if file_of(i) == path]
        functions = sorted({n for n in names if "::" not in n}) or ["test_nothing"]
        lines = [f"def {n}(*args):\n    pass\n" for n in functions]
        for cls in sorted({n.partition("::")[0] for n in names if "::" in n}):
            methods = sorted({n.rpartition("::")[2] for n in names if n.startswith(cls + "::")})
            lines.append(f"class {cls}:\n" + "".join(f"    def {m}(self): pass\n" for m in methods))
        found[path] = "\n".join(lines)
    return found


def _folders(tests: Mapping[str, str], name: str) -> list[str]:
    """The file `name` at the root and next to every test file."""
    return sorted({name, *(f"{p.rpartition('/')[0]}/{name}".lstrip("/") for p in tests)})


def _after_future(text: str, inserted: str) -> str:
    """`inserted` after the docstring and `from __future__` lines."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return inserted + text
    last = 0
    for i, node in enumerate(body):
        doc = i == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if doc or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            last = node.end_lineno or 0
        else:
            break
    lines = text.splitlines(keepends=True)
    return "".join(lines[:last]) + inserted + "".join(lines[last:])


def _file(path: str, text: str) -> Entry:
    return Entry(path, "f", 0o644, text.encode("utf-8", "surrogatepass"))

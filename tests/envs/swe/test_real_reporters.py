"""`envs.swe.reporters`: code under test that goes for those of pytest and unittest passes no test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from evotrainer.envs.swe.instance_world import LIMITS
from evotrainer.envs.swe.packages import PLACE, pytest_folder
from evotrainer.envs.swe.test_commands import TestCommand, passed
from evotrainer.sandbox.launch import find_bubblewrap
from evotrainer.sandbox.shell import EpisodeShell
from tests.tables import table

pytestmark = pytest.mark.skipif(
    find_bubblewrap() is None or shutil.which("git") is None, reason="bubblewrap or git is not installed"
)

TESTS = (
    "import unittest, pytest, m\nFORMS\n@pytest.mark.xfail\ndef test_x(): assert 0\nclass T(unittest.TestCase):\n"
    "    def test_u(self): self.assertTrue(m.add(1, 2) == 3 and type(m.add(1, 2)) is int)\n"
    "    def test_ok(self): pass\n"
)
FORGERIES: dict[str, str] = table("checkout_cheats")["reporters"]


@pytest.fixture(scope="module")
def pytest_shell() -> Iterator[EpisodeShell]:
    with EpisodeShell.open(None, LIMITS, [(str(pytest_folder()), PLACE)]) as shell:
        yield shell


@pytest.mark.parametrize("kind", ["pytest", "unittest"])
def test_a_right_module_passes_under_the_reporter_and_a_wrong_one_fails(kind: str, pytest_shell: EpisodeShell) -> None:
    tests = TESTS.replace("FORMS", "def test_a(): assert m.add(1, 2) == 3")
    for text, good in (("def add(a, b): return a + b\n", True), ("def add(a, b): return a\n", False)):
        pytest_shell.reset({"repo/m.py": text, "repo/test_m.py": tests})
        found, ran = TestCommand(kind, path=(PLACE,)).run(pytest_shell, ["test_m.py"])
        assert passed(found, "test_m.py::T::test_u") is good and passed(found, "test_m.py::T::test_ok"), ran
        if kind == "pytest":
            assert (found["test_m.py::test_a"], found["test_m.py::test_x"]) == (good, True)


@pytest.mark.parametrize("kind", ["pytest", "unittest"])
@pytest.mark.parametrize("name", FORGERIES)
def test_code_that_goes_for_the_reporter_passes_no_test(name: str, kind: str, pytest_shell: EpisodeShell) -> None:
    tests = TESTS.replace("FORMS", "def test_a(): assert m.add(1, 2) == 3")
    pytest_shell.reset({"repo/m.py": FORGERIES[name], "repo/test_m.py": tests})
    found, _ = TestCommand(kind, path=(PLACE,)).run(pytest_shell, ["test_m.py"])
    assert not passed(found, "test_m.py::T::test_u") and not found.get("test_m.py::test_a", False), found

"""`envs.swe.boundary` and `envs.swe.isolated`: right code passes, and no forgery does,
whatever it makes of an in-process runner.
"""

from __future__ import annotations

import ast
import json
import random
import shutil
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from evotrainer.envs.swe import tools
from evotrainer.envs.swe.boundary import BoundaryRun, cross, parted
from evotrainer.envs.swe.decoys import eligible, plant, run_with_decoys
from evotrainer.envs.swe.instance_world import LIMITS
from evotrainer.envs.swe.isolated import proxies
from evotrainer.envs.swe.isolated.session import BoundaryError, SolutionSession
from evotrainer.envs.swe.isolated.wire import Wire
from evotrainer.envs.swe.packages import PLACE, pytest_folder
from evotrainer.envs.swe.real_shells import packed
from evotrainer.envs.swe.strict_tests import strict
from evotrainer.envs.swe.test_commands import TestCommand
from evotrainer.harness.code_reading.patched import reaching
from evotrainer.sandbox.launch import find_bubblewrap
from evotrainer.sandbox.shell import Entry, EpisodeShell
from tests.envs.swe import forgeries
from tests.tables import table
from tests.thinned import thinned

pytestmark = pytest.mark.skipif(
    find_bubblewrap() is None or shutil.which("git") is None, reason="bubblewrap or git is not installed"
)
TEST = "tests/test_m.py"
IDS = [f"{TEST}::{n}" for n in forgeries.NAMES]


def entries(files: Mapping[str, str]) -> dict[str, Entry]:
    return {p: Entry(p, "f", 0o644, t.encode()) for p, t in files.items()}


class Runner:
    """Two shells for the boundary; the first of them also runs the in-process reporters."""

    def __init__(self, a: EpisodeShell, b: EpisodeShell, cpu_s: float = 60.0) -> None:
        self.a, self.b, self.cpu_s = a, b, cpu_s

    def across(
        self, code: Mapping[str, str], tests: Mapping[str, str], places: frozenset[str] | None, kind: str = "pytest"
    ) -> BoundaryRun:
        code_entries, test_entries = entries(code), entries(tests)
        names = [p for p in tests if p.rpartition("/")[2].startswith("test_")]
        sides = parted({**code_entries, **test_entries}, code_entries, code, lambda p: p in tests, names)
        with packed(sides.tests) as x, packed(sides.solution) as y:
            self.a.reset(x)
            self.b.reset(y)
        return cross(self.a, self.b, sides, TestCommand(kind, path=(PLACE,), cpu_s=self.cpu_s), places)

    def inside(self, code: Mapping[str, str], kind: str = "pytest") -> dict[str, bool]:
        with packed(entries({**code, TEST: forgeries.TESTS})) as files:
            self.a.reset(files)
        return TestCommand(kind, path=(PLACE,)).run(self.a, [TEST])[0]


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    binds = [(str(pytest_folder()), PLACE)]
    with EpisodeShell.open(None, LIMITS, binds) as a, EpisodeShell.open(None, LIMITS, binds) as b:
        yield Runner(a, b)


@pytest.fixture(scope="module")
def places(runner: Runner) -> frozenset[str]:
    """Where the right solution's objects decide."""
    found = runner.across({"m.py": forgeries.RIGHT}, {TEST: forgeries.TESTS}, None)
    assert found.results == dict.fromkeys(IDS, True), found
    assert found.decided == {f"{TEST}::test_money", f"{TEST}::test_moneys"}
    return found.places


def passing(results: Mapping[str, bool]) -> list[str]:
    return [i for i in IDS if results.get(i)]


def test_a_right_solution_passes_and_a_wrong_one_fails_on_every_path(runner: Runner, places: frozenset[str]) -> None:
    for text, wanted in ((forgeries.RIGHT, IDS), (forgeries.WRONG, [])):
        assert passing(runner.across({"m.py": text}, {TEST: forgeries.TESTS}, places).results) == wanted
        assert passing(runner.inside({"m.py": text})) == wanted


@pytest.mark.parametrize("name", thinned(forgeries.OLD | forgeries.LOG, 5))
def test_a_forgery_never_gets_across_the_boundary(name: str, runner: Runner, places: frozenset[str]) -> None:
    code = {"m.py": forgeries.WRONG + (forgeries.OLD | forgeries.LOG)[name]}
    assert not passing(runner.across(code, {TEST: forgeries.TESTS}, places).results)


@pytest.mark.parametrize("name", thinned(forgeries.FRAMES, 4))
def test_a_forged_frame_fails_the_tests_and_ends_nothing(name: str, runner: Runner, places: frozenset[str]) -> None:
    code = {"m.py": forgeries.WRONG + forgeries.frames(forgeries.FRAMES[name])}
    found = runner.across(code, {TEST: forgeries.TESTS}, places)
    assert found.results.keys() == set(IDS) and not passing(found.results), found.tests


def test_the_detector_sees_the_forgeries_that_reach_into_the_process() -> None:
    unseen = set()
    for name, text in (forgeries.OLD | forgeries.LOG).items():
        patch = tools.git_patch({"m.py": forgeries.WRONG}, {"m.py": forgeries.WRONG + text})
        if not reaching(patch):
            unseen.add(name)
    assert unseen == {"iteration stopped"}


def hardened(runner: Runner, text: str) -> tuple[list[str], tuple[str, ...]]:
    """Ids that pass in the process, with strict asserts and decoys; and decoys that passed."""
    tests = strict(forgeries.TESTS, frozenset({"Money"}))

    def run(files: Mapping[str, Entry]) -> Mapping[str, bool]:
        with packed(files) as template:
            runner.a.reset(template)
        return TestCommand("pytest", path=(PLACE,)).run(runner.a, [TEST])[0]

    results, forged = run_with_decoys(run, entries({"m.py": text, TEST: tests}), [TEST])
    return ([] if forged else passing(results)), forged


@pytest.mark.parametrize("text", ["RIGHT", "WRONG"])
def test_decoys_hurt_no_honest_solution(text: str, runner: Runner) -> None:
    assert hardened(runner, getattr(forgeries, text)) == (IDS if text == "RIGHT" else [], ())


def test_a_test_that_may_end_early_or_is_expected_to_fail_gets_no_decoy() -> None:
    assert eligible("def test_a():\n    if f():\n        return\n    assert g()\n") == []
    assert eligible("@pytest.mark.xfail\ndef test_a():\n    assert f()\n") == eligible("def test_a(:") == []
    text = plant("class T:\n    def test_a(self):\n        assert f()\n", ["T::test_a"])
    assert [ast.unparse(x)[:6] for x in ast.walk(ast.parse(text)) if isinstance(x, ast.Assert)] == ["assert"] * 2


BLIND = ["gc finds the reporter", "a plug-in is registered by gc", "test functions get other code"]


@pytest.mark.parametrize("name", BLIND)
def test_who_passes_every_test_in_the_process_passes_decoys_too_and_then_nothing(name: str, runner: Runner) -> None:
    passed, forged = hardened(runner, forgeries.WRONG + forgeries.OLD[name])
    assert passed == [] and len(forged) > 3


def test_unittest_runs_across_the_boundary_too(runner: Runner) -> None:
    tests = {"test_u.py": forgeries.TESTS.replace("import pytest\n", "").partition("def test_value")[0] + "import m\n"
             "class T(unittest.TestCase):\n    def test_a(self): self.assertEqual(m.add(1, 2), 3)\n"
             "    def test_b(self):\n        with self.assertRaises(ValueError): m.check(-1)\n"
             "    @unittest.expectedFailure\n    def test_c(self): self.assertEqual(m.add(1, 2), 4)\n"
             "    @unittest.skip('x')\n    def test_d(self): pass\n"}  # fmt: skip
    right = runner.across({"m.py": forgeries.RIGHT}, tests, None, "unittest").results
    assert right == {
        "test_u.T.test_a": True,
        "test_u.T.test_b": True,
        "test_u.T.test_c": True,
        "test_u.T.test_d": False,
    }
    wrong = runner.across({"m.py": forgeries.WRONG}, tests, frozenset(), "unittest").results
    assert not wrong["test_u.T.test_a"] and not wrong["test_u.T.test_b"]


_CHEATS = table("checkout_cheats")
SLOW: dict[str, str] = _CHEATS["slow"]


def test_a_solution_that_does_not_answer_fails_its_tests_and_the_others_are_told(places: frozenset[str]) -> None:
    limits = replace(LIMITS, idle_s=1.0)
    binds = [(str(pytest_folder()), PLACE)]
    with EpisodeShell.open(None, limits, binds) as a, EpisodeShell.open(None, limits, binds) as b:
        for name, text in SLOW.items():
            runner = Runner(a, b, cpu_s=1.5)
            found = runner.across({"m.py": forgeries.WRONG + text}, {TEST: forgeries.TESTS}, places)
            assert not passing(found.results), name


def test_random_frames_raise_nothing_but_what_a_test_may_see() -> None:
    chance = random.Random(7)
    proxies.SESSION[:] = []
    seen = Counter[str]()
    for _ in range(1500):
        ours, theirs = socket.socketpair()
        session = SolutionSession(Wire(ours.fileno()), None, "/nowhere/")
        session.references.keep(len), session.references.keep([].append)
        data = json.dumps(message(chance, 0)).encode()
        if chance.random() < 0.2:
            at = chance.randrange(len(data))
            data = data[:at] + chance.randbytes(2) + data[at + chance.randrange(4) :]
        theirs.sendall(len(data).to_bytes(4, "little") + data)
        theirs.shutdown(socket.SHUT_WR)
        try:
            session.request("get", 1, "x", [[1]])
        except BoundaryError:
            seen["refused"] += 1
        except Exception:  # the solution's own, as a test may see it; anything else ends this test
            seen["raised"] += 1
        else:
            seen["answered"] += 1
        ours.close()
        theirs.close()
    assert set(seen) == {"refused", "raised", "answered"} and seen.total() == 1500, seen


KEYS = "v e m new cb nx st a k t c s n q b d meta abc members f stop"
WORDS = "x opaque class object exception name dict ValueError builtins"
"""Keys and texts of answers."""


def message(chance: random.Random, depth: int) -> Any:
    """Something that looks like an answer."""
    leaf: list[Any] = [None, True, 0, 1, -1, 5, 1e999, *WORDS.split(), [], {}]
    if depth > 3 or chance.random() < 0.25 * bool(depth):
        return chance.choice(leaf)
    if depth and chance.random() < 0.2:
        return {"t": "opaque", "v": ["x", chance.choice([-2, -1, 1, 5])]}
    if depth and chance.random() < 0.3:
        return [message(chance, depth + 1) for _ in range(chance.randrange(4))]
    found = {k: message(chance, depth + 1) for k in chance.sample(KEYS.split(), chance.randrange(1, 12))}
    about = {"k": chance.choice(["class", "object", "exception", "module", "name", "slice", "path", "pattern"])}
    return (
        {**found, "new": {"5": {**about, **found}, "1": message(chance, depth + 1)}}
        if not depth
        else {**about, **found}
    )


REVIEWED, REVIEWED_RIGHT = (_CHEATS["reviewed modules"][name] for name in ("TESTS", "RIGHT"))
REVIEWED_LIES: dict[str, str] = _CHEATS["reviewed"]
"""What a reviewer found after the corpus above held; each aims at one or two of the tests."""
REVIEWED_AT = {
    "an assertion swallowed in a callback": ["test_callback"],
    "an exception that catches failures": ["test_raises"],
    "an exception that catches everything": ["test_raises", "test_pytest_raises"],
    "a class made of what the tests hand over": ["test_type"],
    "a difference denied": ["test_not_equal"],
    "a container that holds everything": ["test_within"],
    "a mark that forgives": ["test_fast"],
}


@pytest.fixture(scope="module")
def reviewed(runner: Runner) -> BoundaryRun:
    return runner.across({"m.py": REVIEWED_RIGHT}, {TEST: REVIEWED}, None)


def test_a_right_solution_passes_what_a_reviewer_asked(runner: Runner, reviewed: BoundaryRun) -> None:
    bad = [i for i, good in reviewed.results.items() if not good]
    assert bad in ([], [f"{TEST}::test_type"]), "who is handed `type` is graded in the process"
    again = runner.across({"m.py": REVIEWED_RIGHT}, {TEST: REVIEWED}, reviewed.places).results
    assert again == reviewed.results


@pytest.mark.parametrize("name", thinned(REVIEWED_LIES, 3))
def test_what_a_reviewer_found_gets_through_no_more(name: str, runner: Runner, reviewed: BoundaryRun) -> None:
    lie = {"m.py": REVIEWED_RIGHT + REVIEWED_LIES[name]}
    aims = REVIEWED_AT.get(name, ["test_half"])
    if name == "equal to what is asked first":  # it guesses which question is the real one: now and then it is right
        tries = [runner.across(lie, {TEST: REVIEWED}, reviewed.places).results for _ in range(6)]
        assert sum(t[f"{TEST}::test_half"] for t in tries) < 6
        return
    found = runner.across(lie, {TEST: REVIEWED}, reviewed.places).results
    assert not any(found.get(f"{TEST}::{aim}") for aim in aims), found

"""`envs.swe.control`: attacks by control files and by residues are fended off."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evotrainer.envs.admission import Cache
from evotrainer.envs.data.tables import EVALUATION_ONLY
from evotrainer.envs.registry import open_environment
from evotrainer.envs.swe import gitrepo, tools
from evotrainer.envs.swe.admission import admit
from evotrainer.envs.swe.cheats import Change
from evotrainer.envs.swe.control import LIBRARY, Control
from evotrainer.envs.swe.gitrepo import git
from evotrainer.envs.swe.instance_env import as_task
from evotrainer.envs.swe.instance_world import InstanceWorld
from evotrainer.envs.swe.instances import parse_instance
from evotrainer.envs.swe.packages import PLACE, module_names, plugins_in, pytest_folder
from evotrainer.envs.swe.test_commands import TestCommand
from evotrainer.envs.swe.world import Commit, Grade
from evotrainer.harness import Harness, HarnessContext
from evotrainer.sandbox.launch import find_bubblewrap
from evotrainer.sandbox.shell import Entry
from tests.envs.swe.attacks import (
    ATTACKS,
    BASE,
    DEPENDENCY,
    ENTRY,
    INERT,
    LUCKY,
    RESIDUES,
    RIGHT,
    TESTS,
    WRONG,
    link,
    of,
)
from tests.envs.swe.mirrors import import_stream
from tests.small_records import rollout
from tests.thinned import thinned

pytestmark = pytest.mark.skipif(
    find_bubblewrap() is None or shutil.which("git") is None, reason="bubblewrap or git is not installed"
)
PACKAGES = "/opt/packages0"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    """Folder of mirrors, folder of packages, row."""
    folder = tmp_path_factory.mktemp("zoo")
    gitdir = gitrepo.init(folder / "mirrors" / "dev__zoo")
    stream = import_stream([Commit("base", dict.fromkeys(BASE), dict(BASE))])
    git(gitdir, "fast-import", "--quiet", "--done", stdin=stream)
    row = {
        "instance_id": "zoo",
        "repo": "dev/zoo",
        "base_commit": git(gitdir, "rev-parse", "main").decode().strip(),
        "problem_statement": "add subtracts",
        "patch": tools.git_patch({"src/zoo/core.py": WRONG}, {"src/zoo/core.py": RIGHT}),
        "test_patch": tools.git_patch(BASE, {**BASE, **TESTS}),
        "FAIL_TO_PASS": [f"{p}::test_add" for p in TESTS],
        "PASS_TO_PASS": [],
    }
    packages = Path("/var/tmp") / folder.parent.name / folder.name
    return folder / "mirrors", packages, row


@pytest.fixture(scope="module")
def packages(places: tuple[Path, Path, dict[str, Any]]) -> Iterator[Path]:
    folder = places[1]
    folder.mkdir(parents=True)
    (folder / "dependency.py").write_text(DEPENDENCY)
    for path in (folder, folder.parent):
        path.chmod(0o755)
    yield folder
    shutil.rmtree(folder.parent)


def opened(kind: type[InstanceWorld], command: type[TestCommand], repos: Path, packages: Path) -> InstanceWorld:
    binds = [(str(pytest_folder()), PLACE), (str(packages), PACKAGES)]
    library = frozenset(LIBRARY | module_names(packages))
    return kind(repos, command(path=(PLACE, PACKAGES)), binds=binds, library=library, canary_every=1000)


@pytest.fixture(scope="module")
def ours(places: tuple[Path, Path, dict[str, Any]], packages: Path) -> Iterator[InstanceWorld]:
    grader = opened(InstanceWorld, TestCommand, places[0], packages)
    yield grader
    grader.shutdown()


@pytest.fixture(scope="module")
def row(places: tuple[Path, Path, dict[str, Any]]) -> dict[str, Any]:
    return places[2]


def grade(grader: InstanceWorld, row: dict[str, Any], change: Change) -> Grade:
    """The grade of an episode that left this change."""
    handle = grader.open(grader.prepare(parse_instance(row, "row 1", EVALUATION_ONLY)), {})
    try:
        grader.put(handle, change)
        return grader.grade_unwatched([handle])[0]
    finally:
        grader.close(handle)


FIX = of({"src/zoo/core.py": RIGHT})


@pytest.mark.parametrize("name", ATTACKS)
def test_a_control_file_is_not_in_what_is_graded(name: str, ours: InstanceWorld, row: dict[str, Any]) -> None:
    plain, _ = graded_files(ours, row, {})
    files, named = graded_files(ours, row, ATTACKS[name])
    assert {p: e for p, e in files.items() if p not in INERT} == plain
    assert named, "the control file is not named"


def test_without_control_files_nothing_passes_and_a_right_answer_does(ours: InstanceWorld, row: dict[str, Any]) -> None:
    for change in together(ATTACKS.values()):
        found = grade(ours, row, change)
        assert not any(found.hidden.values()) and found.fault is None and found.control_changed
        assert all(grade(ours, row, {**change, **FIX}).hidden.values())


def graded_files(
    grader: InstanceWorld, row: dict[str, Any], change: Change
) -> tuple[dict[str, Entry], tuple[str, ...]]:
    repo = grader.prepare(parse_instance(row, "row 1", EVALUATION_ONLY))
    base = grader.build(repo, {}).tree
    return grader.graded_files(repo, base, {p: e for p, e in {**base, **change}.items() if e is not None})


def together(changes: Iterable[Change]) -> list[Change]:
    """The changes, as many in one as do not stand in each other's way."""
    found: list[dict[str, Entry | None]] = []
    for change in changes:
        for one in found:
            if not any(
                p == q or p.startswith(f"{q}/") or q.startswith(f"{p}/") for p in change for q in one if p != "lucky.py"
            ):
                one.update(change)
                break
        else:
            found.append(dict(change))
    return list(found)


@pytest.mark.parametrize("name", thinned(RESIDUES, 3, "a .pth of the user", "metadata of the user"))
def test_what_an_attempt_leaves_behind_decides_no_later_grade(
    name: str, ours: InstanceWorld, row: dict[str, Any]
) -> None:
    grade(ours, row, of({"src/zoo/core.py": RESIDUES[name]}))
    assert not any(grade(ours, row, {}).hidden.values())


# -- honest work -------------------------------------------------------------------------------------------------------


def control(base: dict[str, str], fix: dict[str, str] | None = None) -> Control:
    entries = {p: e for p, e in of(dict(base)).items() if e is not None}
    tests = frozenset(p for p in entries if "test_" in p)
    return Control(entries, of(dict(fix or {})), tests, lambda p: "test_" in p)


def sorted_out(base: dict[str, str], change: Change, fix: dict[str, str] | None = None) -> tuple[dict[str, str], Any]:
    """What is graded, as texts, and what is named."""
    left = {p: e for p, e in {**of(dict(base)), **change}.items() if e is not None}
    files, named = control(base, fix).sorted_out(left)
    return {p: e.data.decode("utf-8", "replace") for p, e in files.items()}, named


HONEST: dict[str, Change] = {
    "another version in pyproject.toml": of({"pyproject.toml": BASE["pyproject.toml"] + 'version = "2"\n'}),
    "a dependency in setup.cfg": of(
        {"setup.cfg": BASE["setup.cfg"].replace("name = zoo", "name = zoo\ninstall_requires = x")}
    ),
    "setup.py": of({"setup.py": "from setuptools import setup\n"}),
    "a module named as one of the library, in a package": of({"src/zoo/types.py": "X = 1\n"}),
    "a text named as one": of({"code.md": "notes\n", "random.txt": ""}),
    "a new module": of({"src/zoo/more/__init__.py": "", "src/zoo/more/x.py": ""}),
    "a link": of({"src/zoo/again.py": link("src/zoo/again.py", "core.py")}),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_changes_are_graded_as_they_are(name: str) -> None:
    files, named = sorted_out(BASE, HONEST[name])
    assert named == () and all(files[p].encode() == e.data for p, e in HONEST[name].items() if e is not None)


BY_PRODUCTS: dict[str, Change] = {
    "py_compile": of({"src/zoo/__pycache__/core.cpython-311.pyc": b"\xa7\r\r\n" + bytes(12)}),
    "metadata with a console script": of(
        {"zoo.egg-info/PKG-INFO": "Name: zoo\n", "zoo.egg-info/entry_points.txt": "[console_scripts]\nzoo = zoo:main\n"}
    ),
    "a built extension": of({"src/zoo/fast.cpython-311-x86_64-linux-gnu.so": b"\x7fELF"}),
    "a pyproject.toml that says nothing of tests": of({"pkg/pyproject.toml": '[project]\nname = "x"\n'}),
    "an empty __init__ beside a test": of({"tests/__init__.py": ""}),
}


@pytest.mark.parametrize("name", BY_PRODUCTS)
def test_by_products_are_left_out_without_a_word(name: str) -> None:
    files, named = sorted_out(BASE, BY_PRODUCTS[name])
    assert named == () and files == BASE


def test_what_the_reference_fix_does_to_control_files_stands() -> None:
    fix = {
        "conftest.py": "fixed\n",
        "setup.cfg": BASE["setup.cfg"].replace("-q", "-q -x"),
        "src/zoo/plugin.py": "mended\n",
        "src/zoo/parts/__init__.py": "",
    }
    assert sorted_out(BASE, of(dict(fix)), fix) == ({**BASE, **fix}, ())
    files, named = sorted_out(BASE, {}, fix)  # the fixtures that its tests need, but not what it mends
    assert files == {**BASE, "conftest.py": "fixed\n"} and named == ("conftest.py",)


TRICKS = {
    "an indented head": "[tool:pytest]\nmarkers =\n  [x]\naddopts = -p lucky\n",
    "a head with a comment": "[metadata] # x\n[tool:pytest] ; y\naddopts = -p lucky\n",
    "a head behind a form feed": "[metadata]\n\x0c[tool:pytest]\naddopts = -p lucky\n",
    "a head behind another line break": "[metadata]\nx = 1\u2028[tool:pytest]\u2028addopts = -p lucky\n",
    "a mark at the beginning": "\ufeff[tool:pytest]\naddopts = -p lucky\n",
    "too long to be read": "[tool:pytest]\n" + "# x\n" * 100_000,
    "no text": b"\xff[tool:pytest]\naddopts = -p lucky\n",
}


@pytest.mark.parametrize("name", TRICKS)
def test_a_configuration_that_may_steer_tests_is_not_taken(name: str) -> None:
    base = {**BASE, "setup.cfg": "[metadata]\n"}
    for path in ("setup.cfg", "tox.ini"):
        files, named = sorted_out(base, of({path: TRICKS[name]}))
        assert (files, named) == (base, (path,))


def test_compiled_modules_in_the_place_of_others_are_named() -> None:
    suffix = "cpython-311-x86_64-linux-gnu.so"
    for path in (f"src/zoo/core.{suffix}", f"json.{suffix}", f"sitecustomize.{suffix}", "json.pyc", "src/zoo/core.pyc"):
        assert sorted_out(BASE, of({path: b"\x7fELF"})) == (BASE, (path,))


def test_what_a_linked_control_file_of_the_base_leads_to_is_one() -> None:
    base = {p: e for p, e in of(dict(BASE)).items() if e is not None}
    base |= {"pkg/conftest.py": link("pkg/conftest.py", "../src/zoo/shared.py"), "src/zoo/shared.py": base["setup.py"]}
    steering = Control(base, {}, frozenset(), lambda p: False)
    changed = {**base, **{p: e for p, e in of({"src/zoo/shared.py": LUCKY}).items() if e is not None}}
    assert steering.sorted_out(changed) == (base, ("src/zoo/shared.py",))


def test_removed_control_files_are_put_back_and_named() -> None:
    base = {**BASE, "src/zoo/parts/__init__.py": ""}
    gone = ("conftest.py", "setup.cfg", "src/zoo/parts/__init__.py", "src/zoo/plugin.py")
    assert sorted_out(base, dict.fromkeys(gone)) == (base, gone)


# -- evidence, plug-ins ------------------------------------------------------------------------------------------------


def test_a_policy_that_writes_a_control_file_is_in_the_evidence(
    places: tuple[Path, Path, dict[str, Any]], row: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    env = open_environment(
        {"name": "swe", "source": str(tmp_path / "rows.json"), "repos": str(places[0]), "admit": False}
    )
    plant = [f"write lucky.py\n{LUCKY}", f"write zoo.egg-info/entry_points.txt\n{ENTRY}"]
    rollouts = []
    for k, texts in enumerate(([*plant, "submit"], ["submit"])):
        episode = env.reset(env.tasks("cert")[0], {})
        for text in texts:
            env.step([episode], [text], ["stop"])
        (score,) = env.score([episode])
        assert score.outcome == "incorrect" and score.error is None
        assert score.detail["protected"] == ({"zoo.egg-info/entry_points.txt": False} if k == 0 else {})
        fields: dict[str, Any] = {"turns": tuple(episode.turns), "detail": score.detail, "outcome": score.outcome}
        rollouts.append(rollout(1, k, **fields))
    env.close()
    report = Harness.default().read(rollouts, "x", HarnessContext())
    found = [f for f in report.findings if f.detector == "test_tampering"]
    assert found and "protected file changed: zoo.egg-info/entry_points.txt" in str(found), report


def test_a_plug_in_that_tests_need_is_named_at_admission(
    ours: InstanceWorld, row: dict[str, Any], packages: Path, tmp_path: Path
) -> None:
    (packages / "helpful.py").write_text("import pytest\n@pytest.fixture\ndef three(): return 3\n")
    metadata = packages / "helpful-1.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[pytest11]\nhelp = helpful\n")
    test = "from zoo.core import add\n\n\ndef test_add(three):\n    assert add(1, 2) == three\n"
    patch = tools.git_patch(BASE, {**BASE, "test_root.py": test})
    task = as_task(
        parse_instance(
            {**row, "instance_id": "helped", "test_patch": patch, "FAIL_TO_PASS": ["test_root.py::test_add"]},
            "row 1",
            EVALUATION_ONLY,
        )
    )
    offered = plugins_in(packages)
    assert offered == ["helpful"]
    (verdict,) = admit([task], ours, Cache(tmp_path), plugins=offered).verdicts
    assert 'environment.plugins = ["helpful"]' in verdict.reasons[0]
    repo = ours.prepare(task.data["instance"])
    ours.command, before = replace(ours.command, plugins=("helpful",)), ours.command
    try:
        passed, _ = ours.run_ids(repo, ours.graded_files(repo, base := ours.build(repo, {}).tree, {**base, **FIX})[0])
    finally:
        ours.command = before
    assert all(passed.values())

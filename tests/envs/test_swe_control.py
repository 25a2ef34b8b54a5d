"""Attacks by control files and by residues: each works against a trusting grader and is fended off by ours."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from evotrainer.envs.swe import gitrepo, tools
from evotrainer.envs.swe.cheats import Change
from evotrainer.envs.swe.control import LIBRARY
from evotrainer.envs.swe.gitrepo import git
from evotrainer.envs.swe.instance_world import InstanceWorld
from evotrainer.envs.swe.instances import EVALUATION_ONLY, InstanceRepo, parse_instance
from evotrainer.envs.swe.packages import module_names
from evotrainer.envs.swe.pytest_folder import PLACE, pytest_folder
from evotrainer.envs.swe.real import overlaid
from evotrainer.envs.swe.real_shells import packed
from evotrainer.envs.swe.reporters import PYTEST
from evotrainer.envs.swe.test_commands import TestCommand, _marked
from evotrainer.envs.swe.world import Commit, Grade
from evotrainer.sandbox.launch import find_bubblewrap
from evotrainer.sandbox.shell import Entry, EpisodeShell, Ran

from .swe_attacks import ATTACKS, BASE, DEPENDENCY, RESIDUES, RIGHT, TESTS, WRONG, of

pytestmark = pytest.mark.skipif(
    find_bubblewrap() is None or shutil.which("git") is None, reason="bubblewrap or git is not installed"
)
PACKAGES = "/opt/packages0"


class TrustingCommand(TestCommand):
    """As graders were: the checkout on PYTHONPATH before Python starts, every plug-in that offers itself."""

    def run(self, shell: EpisodeShell, files: Sequence[str]) -> tuple[dict[str, bool], Ran]:
        env = {"PYTHONPATH": ":".join(("/w/repo", "/w/repo/src", *self.path)), "EVOTRAINER_PATH": ":".join(self.path)}
        words = [PYTEST, "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", *files]
        ran = shell.run([shell.python, "-c", *words], stdin="<mark>", env=env)
        return _marked(ran, "<mark>"), ran


class TrustingWorld(InstanceWorld):
    """As graders were: the policy's files with the data set's tests on top, one machine whose home stays."""

    def graded_files(
        self, repo: InstanceRepo, base: Mapping[str, Entry], left: Mapping[str, Entry]
    ) -> tuple[dict[str, Entry], tuple[str, ...]]:
        return overlaid(dict(left), {p: e for p, e in repo.tests.items() if e is not None}), ()

    def fresh(self, files: Mapping[str, Entry]) -> EpisodeShell:
        if self._grading is None or self._grading.closed:
            self._grading = self._shells.new(None)
        self._grading.run(["rm", "-rf", "/w/repo"], cwd=".")
        with packed(files) as template:
            self._grading.write(template)
        return self._grading


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    """Folder of mirrors, folder of packages, row."""
    folder = tmp_path_factory.mktemp("zoo")
    gitdir = gitrepo.init(folder / "mirrors" / "dev__zoo")
    stream = gitrepo.import_stream([Commit("base", dict.fromkeys(BASE), dict(BASE))])
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
    world = opened(InstanceWorld, TestCommand, places[0], packages)
    yield world
    world.shutdown()


@pytest.fixture(scope="module")
def trusting(places: tuple[Path, Path, dict[str, Any]], packages: Path) -> Iterator[InstanceWorld]:
    world = opened(TrustingWorld, TrustingCommand, places[0], packages)
    yield world
    world.shutdown()


@pytest.fixture(scope="module")
def row(places: tuple[Path, Path, dict[str, Any]]) -> dict[str, Any]:
    return places[2]


def grade(world: InstanceWorld, row: dict[str, Any], change: Change) -> Grade:
    """The grade of an episode that left this change."""
    handle = world.open(world.prepare(parse_instance(row, "row 1", EVALUATION_ONLY)), {})
    try:
        world.put(handle, change)
        return world.grade_unwatched([handle])[0]
    finally:
        world.close(handle)


FIX = of({"src/zoo/core.py": RIGHT})


@pytest.mark.parametrize("name", ATTACKS)
def test_a_control_file_decides_a_trusting_grade_and_not_ours(
    name: str, trusting: InstanceWorld, ours: InstanceWorld, row: dict[str, Any]
) -> None:
    naive, real = grade(trusting, row, ATTACKS[name]), grade(ours, row, ATTACKS[name])
    assert any(naive.hidden.values()), "the attack does not work without the defence"
    assert not any(real.hidden.values()) and real.fault is None
    assert real.control_changed, "the control file is not named"


def test_control_files_take_nothing_from_a_right_answer(ours: InstanceWorld, row: dict[str, Any]) -> None:
    for change in together(ATTACKS.values()):
        found = grade(ours, row, {**change, **FIX})
        assert all(found.hidden.values()) and found.fault is None


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


@pytest.mark.parametrize("name", RESIDUES)
def test_what_an_attempt_leaves_behind_decides_later_grades_of_a_kept_machine_and_not_ours(
    name: str, trusting: InstanceWorld, ours: InstanceWorld, row: dict[str, Any]
) -> None:
    trusting.renew()
    assert not any(grade(trusting, row, {}).hidden.values())
    for world, works in ((trusting, True), (ours, False)):
        grade(world, row, of({"src/zoo/core.py": RESIDUES[name]}))
        assert any(grade(world, row, {}).hidden.values()) is works
